"""Input items as V4's messages."""

import pytest
from pydantic import TypeAdapter, ValidationError

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.server.client_names import PATH
from dsv4_trt.runtime.server.error_handlers import invalid_failure
from dsv4_trt.runtime.server.responses.history import v4_messages
from dsv4_trt.runtime.server.responses.input_items import Items
from dsv4_trt.runtime.server.sealed_text import seal

ITEMS = TypeAdapter(Items)


def made(given, past=(), stored=None):
    find = dict(stored or {}).get
    return without_paths(v4_messages(ITEMS.validate_python(given), find, past))


def without_paths(messages):
    return [{k: v for k, v in message.items() if k != PATH} for message in messages]


def message(role, content):
    return {"role": role, "content": content}


def reasoning(text, **fields):
    content = [{"type": "reasoning_text", "text": text}] if text else None
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": content} | fields


def call(call_id, arguments="{}"):
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": "f",
        "arguments": arguments,
        "status": "completed",
        "id": "fc_1",
    }


def output(call_id, value):
    return {"type": "function_call_output", "call_id": call_id, "output": value}


def assistant(content="", thought="", calls=()):
    return {
        "role": "assistant",
        "content": content,
        "reasoning_content": thought,
        "tool_calls": [
            {"id": i, "type": "function", "function": {"name": "f", "arguments": a}}
            for i, a in calls
        ],
    }


def test_a_string_is_a_user_message():
    assert made("hi") == [message("user", "hi")]
    assert made([message("user", [{"type": "input_text", "text": "hi"}])]) == made("hi")


def test_a_tool_loop_keeps_reasoning_and_the_letters_of_arguments():
    found = made(
        [
            message("user", "go"),
            reasoning("why"),
            message("assistant", [{"type": "output_text", "text": "I call.", "annotations": []}]),
            call("c1", '{"x":1.0}'),
            call("c2"),
            output("c2", "two"),
            output("c1", [{"type": "input_text", "text": "one"}]),
            reasoning("so"),
            call("c3"),
            output("c3", ""),
        ]
    )
    assert found == [
        message("user", "go"),
        assistant("I call.", "why", [("c1", '{"x":1.0}'), ("c2", "{}")]),
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        assistant(thought="so", calls=[("c3", "{}")]),
        {"role": "tool", "tool_call_id": "c3", "content": ""},
    ]


SUMMARY = [{"type": "summary_text", "text": "short"}]


@pytest.mark.parametrize(
    ("item", "thought"),
    [
        (reasoning("text", summary=SUMMARY, encrypted_content=seal("sealed")), "text"),
        (reasoning("", summary=SUMMARY, encrypted_content=seal("sealed")), "sealed"),
        (reasoning("", summary=SUMMARY, encrypted_content="gAAAAB-of-another"), "short"),
        (reasoning("", encrypted_content="gAAAAB-of-another"), ""),
    ],
)
def test_of_several_spellings_of_reasoning_the_most_exact_counts(item, thought):
    found = made([message("user", "a"), item, message("assistant", "b"), message("user", "c")])
    assert found[1] == assistant("b", thought)


def test_system_and_developer_messages_in_front_are_the_system_message():
    found = made([message("developer", "A"), message("system", "B"), message("user", "c")])
    assert found == [message("system", "A\n\nB"), message("user", "c")]


def test_later_developer_messages_are_part_of_the_users_turn():
    found = made([message("user", "a"), message("developer", "B"), message("user", "c")])
    assert [m["role"] for m in found] == ["user", "user", "user"]


def test_a_conversation_goes_on_from_what_is_stored_and_leaves_that_as_it_is():
    past = v4_messages(
        ITEMS.validate_python([message("user", "a"), reasoning("r"), call("c1")]), {}.get
    )
    before = without_paths(past)
    found = made([output("c1", "x"), message("user", "b")], past)
    assert found[: len(before)] == before == without_paths(past)
    assert [m["role"] for m in found[len(before) :]] == ["tool", "user"]
    more = made([message("assistant", "b"), message("user", "c")], past)
    assert more[1]["content"] == "b"
    assert without_paths(past) == before


def test_references_are_looked_up():
    stored = {"fc_1": ITEMS.validate_python([call("c1")])[0]}
    given = [message("user", "a"), {"type": "item_reference", "id": "fc_1"}, output("c1", "r")]
    assert made(given, stored=stored)[1] == assistant(calls=[("c1", "{}")])
    given[1] = {"id": "fc_1"}  # clients leave the type out as well
    assert made(given, stored=stored)[1] == assistant(calls=[("c1", "{}")])


@pytest.mark.parametrize(
    ("given", "parameter", "says"),
    [
        ([{"type": "item_reference", "id": "rs_9"}], "input[0]", "rs_9"),
        ([message("user", "a"), output("c9", "r")], "input[1].call_id", "c9"),
        ([message("user", "a"), call("c1"), call("c1")], "input[2].call_id", "another call"),
    ],
)
def test_what_refers_to_nothing_is_refused(given, parameter, says):
    with pytest.raises(RequestError, match=says) as caught:
        made(given)
    assert caught.value.parameter == parameter


@pytest.mark.parametrize(
    ("given", "parameter", "says"),
    [
        (
            [message("user", [{"type": "input_image", "image_url": "x"}])],
            "[0].content[0]",
            "input_image",
        ),
        (
            [message("user", [{"type": "input_file", "file_id": "x"}])],
            "[0].content[0]",
            "input_file",
        ),
        ([{"type": "web_search_call", "id": "x"}], "[0]", "'web_search_call' is not supported"),
        ([{"type": "local_shell_call"}], "[0]", "local_shell_call"),
        ([message("tool", "x")], "[0].role", "tool"),
        ([{"type": "function_call", "name": "f", "arguments": "{}"}], "[0].call_id", "missing"),
        ([5], "[0]", "5"),
    ],
)
def test_items_that_are_refused(given, parameter, says):
    with pytest.raises(ValidationError) as caught:
        ITEMS.validate_python(given)
    failure = invalid_failure([e | {"loc": ("body", *e["loc"])} for e in caught.value.errors()])
    assert failure.parameter == parameter
    assert says in failure.message
