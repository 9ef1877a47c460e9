"""A Messages request as a turn: what agents send, and what is refused by its path."""

import pytest
from pydantic import ValidationError

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.server.anthropic.request_models import CountTokensRequest, MessagesRequest
from dsv4_trt.runtime.server.anthropic.turn import chat_turn, prompt_turn
from dsv4_trt.runtime.server.chat_turn import ToolChoice
from dsv4_trt.runtime.server.client_names import PATH
from dsv4_trt.runtime.server.error_handlers import invalid_failure
from dsv4_trt.runtime.server.sealed_text import seal

TOOL = {
    "name": "read_file",
    "description": "Reads.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    "cache_control": {"type": "ephemeral"},
}


def body(*messages, **fields):
    given = {"model": "tiny", "max_tokens": 10, "messages": list(messages) or [user("hi")]}
    return MessagesRequest.model_validate(given | fields)


def user(*content):
    return {"role": "user", "content": content[0] if isinstance(content[0], str) else list(content)}


def assistant(*content):
    return user(*content) | {"role": "assistant"}


def text(value):
    return {"type": "text", "text": value, "cache_control": {"type": "ephemeral"}}


def use(call_id, **arguments):
    return {"type": "tool_use", "id": call_id, "name": "read_file", "input": arguments}


def result(call_id, content, **fields):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content} | fields


def thinking(value, signature="s"):
    return {"type": "thinking", "thinking": value, "signature": signature}


def messages_of(*messages, **fields):
    turn = chat_turn(body(*messages, **fields))
    return [{k: v for k, v in message.items() if k != PATH} for message in turn.messages]


def v4_assistant(content="", reasoning="", calls=()):
    return {
        "role": "assistant",
        "content": content,
        "reasoning_content": reasoning,
        "tool_calls": [
            {"id": i, "type": "function", "function": {"name": "read_file", "arguments": a}}
            for i, a in calls
        ],
    }


def refusal(*messages, **fields):
    """The parameter and the text of what refuses a request."""
    try:
        chat_turn(body(*messages, **fields))
    except RequestError as error:
        return error.parameter, str(error)
    except ValidationError as error:
        located = [e | {"loc": ("body", *e["loc"])} for e in error.errors()]
        failure = invalid_failure(located)
        return failure.parameter, failure.message
    raise AssertionError("it was accepted")


def test_a_string_and_text_blocks_mean_the_same():
    assert messages_of(user("a")) == messages_of(user(text("a")))
    assert messages_of(user("a"), system="s") == messages_of(user("a"), system=[text("s")])


def test_system_blocks_are_one_message_without_the_agents_billing_line():
    system = [text("x-anthropic-billing-header: cc_version=2.1; cch=36ee5;"), text("A"), text("B")]
    assert messages_of(user("hi"), system=system)[0] == {"role": "system", "content": "A\n\nB"}
    assert messages_of(user("hi"), system=system[:1]) == [{"role": "user", "content": "hi"}]
    quoted = "what is x-anthropic-billing-header: for?"
    assert messages_of(user(quoted), system=quoted)[0]["content"] == quoted


def test_a_tool_loop_with_thinking_keeps_what_the_model_said():
    made = messages_of(
        user("go"),
        assistant(thinking("why"), text("I read."), use("t1", path="é"), use("t2", path="b")),
        user(result("t2", "B"), result("t1", [text("A"), text("a")]), text("next")),
    )
    assert made == [
        {"role": "user", "content": "go"},
        v4_assistant("I read.", "why", [("t1", '{"path": "é"}'), ("t2", '{"path": "b"}')]),
        {"role": "tool", "tool_call_id": "t2", "content": "B"},
        {"role": "tool", "tool_call_id": "t1", "content": "A\n\na"},
        {"role": "user", "content": "next"},
    ]


def test_thinking_that_was_not_shown_comes_back_from_its_signature():
    hidden = thinking("", seal("why"))
    other = thinking("", "EqQBCgIYAhIM")
    redacted = {"type": "redacted_thinking", "data": "x"}
    made = messages_of(user("a"), assistant(hidden, other, redacted, text("b")), user("c"))
    assert made[1] == v4_assistant("b", "why")


def test_assistant_messages_in_a_row_are_one_turn():
    made = messages_of(
        user("a"), assistant("b"), assistant(thinking("t"), use("t1")), user(result("t1", "r"))
    )
    assert made[1] == v4_assistant("b", "t", [("t1", "{}")])


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("no such file", "Error: no such file"),
        ("<tool_use_error>bad</tool_use_error>", "<tool_use_error>bad</tool_use_error>"),
        ("Error: no", "Error: no"),
    ],
)
def test_an_error_of_a_tool_is_told_in_words(told, shown):
    made = messages_of(user("a"), assistant(use("t1")), user(result("t1", told, is_error=True)))
    assert made[2]["content"] == shown


def test_empty_contents_and_results_without_content_are_accepted():
    empty = {"type": "tool_result", "tool_use_id": "t1"}
    made = messages_of({"role": "user", "content": []}, assistant(use("t1")), user(empty))
    assert made[0] == {"role": "user", "content": ""}
    assert made[2]["content"] == ""


def test_a_system_message_within_the_conversation_is_part_of_the_users_turn():
    middle = {"role": "system", "content": "be short"}
    made = messages_of(user("a"), assistant("b"), middle, user("c"))
    assert [m["role"] for m in made] == ["user", "assistant", "user", "user"]


def test_tools_are_functions_in_openais_shape():
    turn = chat_turn(body(tools=[TOOL, {"name": "x", "input_schema": {}, "strict": True}]))
    assert turn.tools == [
        {
            "type": "function",
            "function": {
                "name": "read_file",
                "description": "Reads.",
                "parameters": TOOL["input_schema"],
            },
        },
        {"type": "function", "function": {"name": "x", "parameters": {}, "strict": True}},
    ]


@pytest.mark.parametrize(
    ("choice", "expected", "parallel"),
    [
        (None, ToolChoice(), True),
        ({"type": "auto"}, ToolChoice(), True),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice(), False),
        ({"type": "any"}, ToolChoice(kind="required"), True),
        ({"type": "none"}, ToolChoice(kind="none"), True),
        (
            {"type": "tool", "name": "read_file", "disable_parallel_tool_use": True},
            ToolChoice(kind="named", name="read_file"),
            False,
        ),
    ],
)
def test_tool_choices(choice, expected, parallel):
    turn = chat_turn(body(tools=[TOOL], tool_choice=choice))
    assert (turn.tool_choice, turn.parallel_tool_calls) == (expected, parallel)


@pytest.mark.parametrize(
    ("fields", "thinks", "effort"),
    [
        ({}, True, None),
        ({"thinking": {"type": "disabled"}}, False, None),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, True, None),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, True, None),
        ({"output_config": {"effort": "low"}}, True, "high"),
        ({"output_config": {"effort": "high"}}, True, "high"),
        ({"output_config": {"effort": "xhigh"}}, True, "max"),
        ({"output_config": {"effort": "max"}}, True, "max"),
    ],
)
def test_thinking_and_effort(fields, thinks, effort):
    turn = chat_turn(body(**fields))
    assert (turn.thinking, turn.effort) == (thinks, effort)


def test_sampling_is_passed_on_and_absent_fields_are_not():
    assert chat_turn(body()).sampling == {}
    turn = chat_turn(body(temperature=0, top_p=0.5, top_k=3, stop_sequences=["a", "b"]))
    assert turn.sampling == {"temperature": 0, "top_p": 0.5, "top_k": 3, "stop": ("a", "b")}
    assert turn.max_tokens == 10


def test_a_format_is_a_grammar_and_part_of_the_prompt():
    schema = {"type": "object"}
    config = {"format": {"type": "json_schema", "schema": schema}}
    turn = chat_turn(body(output_config=config))
    assert turn.guided.json == schema
    assert turn.response_format == schema


def test_an_assistant_message_at_the_end_goes_on():
    turn = chat_turn(body(user("a"), assistant("The best")))
    assert turn.continue_final
    assert not turn.thinking  # it was begun without reasoning
    turn = chat_turn(body(user("a"), assistant(thinking("t"), text("The best"))))
    assert turn.continue_final
    assert turn.thinking


def test_what_agents_send_besides_is_ignored():
    turn = chat_turn(
        body(
            metadata={"user_id": "u"},
            context_management={"edits": [{"type": "clear_thinking_20251015"}]},
            betas=["x"],
            service_tier="auto",
            mcp_servers=[],
            tomorrows_field=1,
        )
    )
    assert [message["content"] for message in turn.messages] == ["hi"]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}


@pytest.mark.parametrize(
    ("messages", "parameter", "says"),
    [
        ([user(text("a"), IMAGE)], "messages[0].content[1]", "'image' is not supported"),
        (
            [user("a"), assistant(use("t1")), user(result("t1", [text("a"), IMAGE]))],
            "messages[2].content[0].content[1]",
            "'image' is not supported",
        ),
        ([user({"type": "document"})], "messages[0].content[0]", "'document' is not supported"),
        ([user({"type": "text"})], "messages[0].content[0].text", "missing"),
        ([user({})], "messages[0].content[0]", "type"),
        ([{"role": "user", "content": 5}], "messages[0].content", "list"),
        ([{"role": "robot", "content": "a"}], "messages[0].role", "robot"),
        ([user(result("t9", "r"))], "messages[0].content[0].tool_use_id", "t9"),
        ([user(use("t1"))], "messages[0].content[0]", "tool_use block in a message of the role"),
        ([user("a"), assistant(result("t1", ""))], "messages[1].content[0]", "tool_result"),
        ([user("a"), assistant(use("t1"), use("t1"))], "messages[1].content[1].id", "t1"),
        ([user("a"), assistant(use("t1"))], "messages[1]", "tool_result"),
    ],
)
def test_conversations_that_are_refused(messages, parameter, says):
    found, message = refusal(*messages)
    assert found == parameter
    assert says in message


@pytest.mark.parametrize(
    ("fields", "parameter", "says"),
    [
        ({"max_tokens": 0}, "max_tokens", "0"),
        ({"max_tokens": "5"}, "max_tokens", "'5'"),
        ({"temperature": -1}, "temperature", "-1"),
        ({"top_p": 0}, "top_p", "0"),
        ({"stop_sequences": [""]}, "stop_sequences[0]", "''"),
        ({"messages": []}, "messages", "[]"),
        ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools[0]", "web_search"),
        ({"tools": [TOOL, TOOL]}, "tools[1].name", "two tools"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name", "a b"),
        ({"tools": [{"name": "a", "input_schema": {"x": float("nan")}}]}, None, "numbers"),
        ({"tools": [{"name": "a", "input_schema": {"x": "\ud800"}}]}, None, "characters"),
        ({"tool_choice": {"type": "any"}}, "tool_choice", "no tools"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "n"}},
            "tool_choice.name",
            "'n'",
        ),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice", "maybe"),
        ({"thinking": {"type": "between_tools"}}, "thinking", "between_tools"),
        ({"output_format": {"type": "json_schema"}}, "output_format", "output_config.format"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers", "not supported"),
        ({"container": "c"}, "container", "not supported"),
    ],
)
def test_fields_that_are_refused(fields, parameter, says):
    found, message = refusal(**fields)
    assert parameter in (found, None)
    assert says in message


def test_a_prefill_without_reasoning_is_refused_only_where_thinking_is_asked_for():
    fields = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    found, message = refusal(user("a"), assistant("b"), **fields)
    assert found == "messages[1]"
    assert "thinking block" in message


def test_counting_needs_no_max_tokens_and_no_answerable_end():
    given = {"model": "tiny", "messages": [user("a"), assistant(use("t1"))]}
    turn = prompt_turn(CountTokensRequest.model_validate(given))
    assert turn.max_tokens is None
    assert turn.messages[1]["tool_calls"][0]["id"] == "t1"
