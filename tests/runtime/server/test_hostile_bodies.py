"""Bodies that are legal JSON and meant to hold a server up: refused early, or read in linear time."""

import asyncio
import json
import time

import pytest
from pydantic import ValidationError

from dsv4_trt.runtime.server.anthropic.request_models import MessagesRequest
from dsv4_trt.runtime.server.anthropic.turn import chat_turn
from dsv4_trt.runtime.server.body import MAX_ITEMS
from dsv4_trt.runtime.server.error_handlers import invalid_failure
from dsv4_trt.runtime.server.json_answer import json_answer, token_answer
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


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (ResponseRequest, {"input": [{"type": "\ud800"}]}),
        (ResponseRequest, {"input": [{"role": "user", "content": [{"type": "\ud800"}]}]}),
        (ResponseRequest, {"input": "x", "tools": [{"type": "\ud800"}]}),
        (ResponseRequest, {"input": "x", "tool_choice": {"type": "\ud800"}}),
        (MessagesRequest, {"messages": [{"role": "user", "content": [{"type": "\ud800"}]}]}),
        (ChatRequest, {"messages": [{"role": "user", "content": [{"type": "\ud800"}]}]}),
        (ChatRequest, {"messages": [{"role": "\ud800"}]}),
    ],
)
def test_a_word_that_is_no_unicode_can_be_told(model, given):
    with pytest.raises(ValidationError) as found:
        model.model_validate({"model": "m", "max_tokens": 1} | given)
    message = invalid_failure(found.value.errors()).message
    assert r"\ud800" in message
    message.encode("utf-8")


def test_an_illegal_value_is_shown_in_little_time():
    with pytest.raises(ValidationError) as found:
        ChatRequest.model_validate({"messages": [{"role": "user", "content": "x" * 100}] * 100_000})
    errors = found.value.errors()
    begun = time.perf_counter()
    message = invalid_failure(errors).message
    assert time.perf_counter() - begun < 0.05
    assert message.startswith("messages is [{'content': 'x")
    assert len(message) < 400


def test_what_a_client_gets_back_is_json_with_its_own_escapes():
    data = {"metadata": {"a": "\ud800 \u00e9"}}
    answer = json_answer(data)
    assert json.loads(answer.body) == data
    assert answer.headers["content-length"] == str(len(answer.body))


def test_an_answer_of_many_tokens_is_the_same_and_lets_others_go_on():
    token = {"token": "\u00e9", "logprob": -0.5, "bytes": [195, 169]}
    data = {"content": [token | {"top_logprobs": [token] * 20}] * 2000}

    async def main():
        work = asyncio.create_task(token_answer(data, 42_000))
        turns, longest, last = 0, 0.0, time.perf_counter()
        while not work.done():
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            turns, longest, last = turns + 1, max(longest, now - last), now
        return await work, turns, longest

    answer, turns, longest = asyncio.run(main())
    assert answer.body == json_answer(data).body
    assert turns > 5
    assert longest < 0.5
