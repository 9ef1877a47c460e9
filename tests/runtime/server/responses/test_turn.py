"""A Responses request as a turn, and what is refused by its name."""

import pytest
from pydantic import ValidationError

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.server.chat_turn import ToolChoice
from dsv4_trt.runtime.server.client_names import PATH
from dsv4_trt.runtime.server.error_handlers import invalid_failure
from dsv4_trt.runtime.server.responses.history import v4_messages
from dsv4_trt.runtime.server.responses.request_models import ResponseRequest
from dsv4_trt.runtime.server.responses.turn import chat_turn

TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object"}, "strict": name == "g"}
    for name in "fg"
]


def turn_of(given="hi", **fields):
    body = ResponseRequest.model_validate({"input": given} | fields)
    return chat_turn(body, v4_messages(body.input, {}.get))


def refusal(**fields):
    try:
        turn_of(**fields)
    except RequestError as error:
        return error.parameter, str(error)
    except ValidationError as error:
        failure = invalid_failure([e | {"loc": ("body", *e["loc"])} for e in error.errors()])
        return failure.parameter, failure.message
    raise AssertionError("it was accepted")


def contents(turn):
    return [(message["role"], message["content"]) for message in turn.messages]


def test_instructions_stand_before_the_inputs_own_system_message():
    developer = [{"role": "developer", "content": "D"}, {"role": "user", "content": "u"}]
    assert contents(turn_of(instructions="I")) == [("system", "I"), ("user", "hi")]
    assert contents(turn_of(developer, instructions="I")) == [("system", "I\n\nD"), ("user", "u")]
    assert contents(turn_of(developer)) == [("system", "D"), ("user", "u")]


def test_tools_are_functions_in_the_shape_of_chat_completions():
    assert turn_of(tools=TOOLS).tools == [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
        {
            "type": "function",
            "function": {"name": "g", "parameters": {"type": "object"}, "strict": True},
        },
    ]


@pytest.mark.parametrize(
    ("choice", "expected", "names"),
    [
        (None, ToolChoice(), "fg"),
        ("auto", ToolChoice(), "fg"),
        ("none", ToolChoice(kind="none"), "fg"),
        ("required", ToolChoice(kind="required"), "fg"),
        ({"type": "function", "name": "g"}, ToolChoice(kind="named", name="g"), "fg"),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "g"}],
            },
            ToolChoice(kind="required"),
            "g",
        ),
    ],
)
def test_tool_choices(choice, expected, names):
    turn = turn_of(tools=TOOLS, tool_choice=choice)
    assert turn.tool_choice == expected
    assert "".join(tool["function"]["name"] for tool in turn.tools) == names


@pytest.mark.parametrize(
    ("effort", "thinks", "known"),
    [
        (None, True, None),
        ("none", False, None),
        ("minimal", True, "high"),
        ("low", True, "high"),
        ("medium", True, "high"),
        ("high", True, "high"),
        ("xhigh", True, "max"),
        ("max", True, "max"),
    ],
)
def test_effort(effort, thinks, known):
    turn = turn_of(reasoning={"effort": effort})
    assert (turn.thinking, turn.effort) == (thinks, known)


def test_formats():
    schema = {"type": "object"}
    named = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    turn = turn_of(text={"format": named, "verbosity": "low"})
    assert turn.guided.json == schema
    assert turn.response_format == schema
    turn = turn_of(text={"format": {"type": "json_object"}})
    assert turn.guided.json_object
    assert turn.response_format is None
    assert turn_of(text={"format": {"type": "text"}}).guided is None


def test_sampling_is_passed_on_and_absent_fields_are_not():
    assert turn_of().sampling == {}
    turn = turn_of(temperature=0, top_p=0.5, max_output_tokens=7, parallel_tool_calls=False)
    assert turn.sampling == {"temperature": 0, "top_p": 0.5}
    assert turn.max_tokens == 7
    assert not turn.parallel_tool_calls


def test_what_agents_send_besides_is_ignored():
    turn = turn_of(
        store=False,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="k",
        service_tier="auto",
        truncation="disabled",
        background=False,
        top_logprobs=0,
        safety_identifier="s",
        stream_options={"include_obfuscation": False},
        client_metadata={"x": "y"},
    )
    assert [{k: m[k] for k in m if k != PATH} for m in turn.messages] == [
        {"role": "user", "content": "hi"}
    ]


@pytest.mark.parametrize(
    ("fields", "parameter", "says"),
    [
        ({"given": [{"role": "assistant", "content": "a"}]}, "input", "'assistant'"),
        ({"given": [{"role": "developer", "content": "a"}]}, "input", "'system'"),
        ({"given": []}, "input", "[]"),
        ({"given": 5}, "input", "5"),
        ({"max_output_tokens": 0}, "max_output_tokens", "0"),
        ({"temperature": "1"}, "temperature", "'1'"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]", "'web_search' is not supported"),
        ({"tools": [{"type": "custom", "name": "apply_patch"}]}, "tools[0]", "'custom'"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools[1].name", "two tools"),
        ({"tool_choice": "required"}, "tool_choice", "no tools"),
        ({"tool_choice": "sometimes"}, "tool_choice", "sometimes"),
        ({"tool_choice": {"type": "mcp"}}, "tool_choice", "'mcp'"),
        ({"tool_choice": {"type": "function", "name": "x"}}, "tool_choice.name", "'x'"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "huge"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format", "grammar"),
        (
            {"text": {"format": {"type": "json_schema", "name": "n"}}},
            "text.format.schema",
            "missing",
        ),
        ({"include": ["message.output_text.logprobs"]}, "include", "/v1/chat/completions"),
        ({"top_logprobs": 3}, "top_logprobs", "not supported"),
        ({"background": True}, "background", "not supported"),
        ({"conversation": "c"}, "conversation", "not supported"),
        ({"truncation": "auto"}, "truncation", "not supported"),
        ({"prompt": {"id": "p"}}, "prompt", "not supported"),
        ({"metadata": {"a": 1}}, "metadata.a", "1"),
    ],
)
def test_fields_that_are_refused(fields, parameter, says):
    found, message = refusal(**fields)
    assert found == parameter
    assert says in message
