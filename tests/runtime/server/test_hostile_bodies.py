"""Bodies that are legal JSON and meant to hold a server up: refused early, or read in linear time."""

import time

import pytest
from pydantic import ValidationError

from dsv4_trt.runtime.server.anthropic.request_models import MessagesRequest
from dsv4_trt.runtime.server.anthropic.turn import chat_turn
from dsv4_trt.runtime.server.body import MAX_ITEMS
from dsv4_trt.runtime.server.openai.chat_request import ChatRequest
from dsv4_trt.runtime.server.responses.history import v4_messages
from dsv4_trt.runtime.server.responses.request_models import ResponseRequest

SECONDS = 5.0  # a busy core; what grew with the square of its size took a minute
USER = {"role": "user", "content": "x"}
PIECE = "y" * 2000


def parts(kind):
    return [{"type": kind, "text": "x"}] * (MAX_ITEMS + 1)


@pytest.mark.parametrize(
    ("model", "given", "path"),
    [
        (ChatRequest, {"messages": [USER] * (MAX_ITEMS + 1)}, "messages"),
        (ChatRequest, {"messages": [{"role": "user", "content": parts("text")}]}, "content"),
        (MessagesRequest, {"messages": [USER] * (MAX_ITEMS + 1)}, "messages"),
        (MessagesRequest, {"messages": [{"role": "user", "content": parts("text")}]}, "content"),
        (MessagesRequest, {"messages": [USER], "system": parts("text")}, "system"),
        (ResponseRequest, {"input": [USER] * (MAX_ITEMS + 1)}, "input"),
        (ResponseRequest, {"input": [{"role": "user", "content": parts("input_text")}]}, "content"),
    ],
)
def test_lists_are_bounded(model, given, path):
    with pytest.raises(ValidationError) as found:
        model.model_validate({"model": "m", "max_tokens": 1} | given)
    errors = found.value.errors()
    assert [error["type"] for error in errors] == ["too_long"]
    assert path in errors[0]["loc"]


@pytest.mark.parametrize("model", [ChatRequest, MessagesRequest])
def test_the_first_illegal_message_is_enough(model):
    with pytest.raises(ValidationError) as found:
        model.model_validate({"model": "m", "max_tokens": 1, "messages": [{"role": "x"}] * 5000})
    assert len(found.value.errors()) < 10


@pytest.mark.parametrize("role", ["assistant", "system"])
def test_items_that_make_one_message_are_joined_in_linear_time(role):
    count = MAX_ITEMS - 2
    some = [{"role": role, "content": PIECE}] * count
    given = [USER, *some, USER] if role == "assistant" else [*some, USER]
    body = ResponseRequest.model_validate({"model": "m", "input": given})
    begun = time.perf_counter()
    made = v4_messages(body.input, lambda _: None)
    assert time.perf_counter() - begun < SECONDS
    (joined,) = [message for message in made if message["role"] == role]
    assert joined["content"].count("y") == count * len(PIECE)
    assert [message["role"] for message in made[-2:]] == [role, "user"]


def test_calls_of_one_message_are_joined_in_linear_time():
    calls = [
        {"type": "function_call", "call_id": f"c{i}", "name": "f", "arguments": "{}"}
        for i in range(MAX_ITEMS - 2)
    ]
    body = ResponseRequest.model_validate({"model": "m", "input": [USER, *calls, USER]})
    begun = time.perf_counter()
    made = v4_messages(body.input, lambda _: None)
    assert time.perf_counter() - begun < SECONDS
    assert [call["id"] for call in made[1]["tool_calls"]] == [call["call_id"] for call in calls]


def test_messages_in_a_row_of_anthropic_are_joined_in_linear_time():
    answer = {"role": "assistant", "content": PIECE}
    given = [USER, *[answer] * (MAX_ITEMS - 2), USER]
    body = MessagesRequest.model_validate({"model": "m", "max_tokens": 1, "messages": given})
    begun = time.perf_counter()
    turn = chat_turn(body)
    assert time.perf_counter() - begun < SECONDS
    assert [message["role"] for message in turn.messages] == ["user", "assistant", "user"]
    assert turn.messages[1]["content"] == PIECE * (MAX_ITEMS - 2)
