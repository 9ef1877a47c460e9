"""Events out of bytes, and answers out of events: what is lost, doubled or broken is found."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.bench.answer import DONE, Answer
from dsv4_trt.runtime.bench.ask import Ask
from dsv4_trt.runtime.bench.event_splitter import EventSplitter
from dsv4_trt.runtime.bench.openai_body import chunk_tokens, request_body
from dsv4_trt.runtime.bench.record import Record

STREAM = (
    b': ping\n\ndata: {"a":1}\n\nevent: x\ndata:{"b":2}\r\n\r\nid: 4\n\n'
    b'data: {"c":\ndata: 3}\n\ndata: [DONE]\n\n'
)
EVENTS = [b'{"a":1}', b'{"b":2}', b'{"c":\n3}', b"[DONE]"]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_are_the_same_however_bytes_are_cut(cuts):
    splitter = EventSplitter()
    edges = [0, *sorted(cuts), len(STREAM)]
    found = [e for a, b in pairwise(edges) for e in splitter.push(STREAM[a:b])]
    assert found == EVENTS


def test_events_byte_by_byte():
    splitter = EventSplitter()
    assert [e for byte in STREAM for e in splitter.push(bytes([byte]))] == EVENTS


def read(*events):
    record = Record(index=0, scheduled=0.0)
    answer = Answer(record)
    for at, event in enumerate(events):
        answer.read(event if isinstance(event, bytes) else json.dumps(event).encode(), float(at))
    answer.finish()
    return record


def chunk(count=1, end=None, **choice):
    ids = {"token_ids": [5] * count} if not choice else {}
    return {"choices": [{"index": 0, "finish_reason": end, **ids, **choice}]}


def usage(count, prompt=9, **more):
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": count, **more}}


ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}


def test_a_good_answer():
    details = {"prompt_tokens_details": {"cached_tokens": 6}}
    found = read(ROLE, chunk(), chunk(3), chunk(1, "stop"), usage(5, **details), DONE)
    assert (found.error, found.finish_reason, found.is_checked) == (None, "stop", True)
    assert (found.input_tokens, found.cached_tokens, found.output_tokens) == (9, 6, 5)
    assert found.arrivals.tolist() == [1, 2, 3]  # the role is no token
    assert found.counts.tolist() == [1, 3, 1]


@pytest.mark.parametrize("count", [4, 6])
def test_lost_and_doubled_tokens_are_errors(count):
    found = read(chunk(count - 1), chunk(1, "stop"), usage(5), DONE)
    assert (found.error, found.message) == ("tokens", f"usage says 5, {count} were streamed")


def test_text_alone_shows_doubled_tokens_only():
    """A chunk of text may stand for several tokens, or a token may have no text yet."""
    some = [chunk(text="x"), chunk(text="y", end="stop")]
    assert read(*some, usage(5), DONE).error is None
    assert not read(*some, usage(5), DONE).is_checked
    assert read(*some, usage(1), DONE).error == "tokens"


def test_text_beside_a_counted_chunk_brings_no_token_of_its_own():
    """Two kinds of output of one step are two chunks, and the first has the ids of both."""
    both = chunk(token_ids=[5, 6], delta={"reasoning_content": "x"})
    found = read(both, chunk(delta={"content": "y"}), chunk(1, "stop"), usage(3), DONE)
    assert (found.error, found.is_checked) == (None, True)
    assert found.arrivals.tolist() == [0, 2]


def test_log_probabilities_are_counted():
    completions = chunk(end="stop", text="ab", logprobs={"tokens": ["a", "b"]})
    assert read(completions, usage(2), DONE).error is None
    assert read(completions, usage(3), DONE).error == "tokens"
    assert chunk_tokens({"logprobs": {"content": [{}, {}, {}]}}) == (3, True)
    of_both = {"content": [{}], "reasoning_content": [{}, {}], "refusal": None}
    assert chunk_tokens({"logprobs": of_both}) == (3, True)


@pytest.mark.parametrize("name", ["content", "reasoning_content", "reasoning", "tool_calls"])
def test_output_of_a_chat_delta(name):
    assert chunk_tokens({"delta": {name: "x"}}) == (1, False)
    assert chunk_tokens({"delta": {name: ""}}) == (0, False)
    assert chunk_tokens({"delta": {name: "x"}, "token_ids": []}) == (0, True)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ((chunk(1, "stop"), usage(1)), "without [DONE]"),
        ((chunk(1), usage(1), DONE), "without a finish_reason"),
        ((chunk(1, "stop"), usage(1), DONE, chunk(1)), "after [DONE]"),
        ((chunk(1, "stop"), chunk(1), usage(2), DONE), "after the one with finish_reason"),
        ((chunk(1), {"error": {"message": "gone"}}, DONE), "says in the stream: gone"),
        ((b"{", DONE), "JSONDecodeError"),
        ((b"[]", DONE), "AttributeError"),
        ((chunk(1, "stop"), {"usage": {}}, DONE), "KeyError"),
        ((), "without [DONE]"),
    ],
)
def test_broken_streams(events, message):
    found = read(*events)
    assert found.error == "stream"
    assert message in found.message


def test_an_answer_without_usage_is_counted_by_what_arrived():
    found = read(chunk(2), chunk(1, "stop"), DONE)
    assert (found.error, found.output_tokens, found.is_checked) == (None, 3, False)


def test_bodies():
    ask = Ask(text="hi", max_tokens=7)
    chat = request_body(ask, "chat", "m", "token_ids", {"temperature": 0})
    assert chat == {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 7,
        "stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True,
        "temperature": 0,
    }  # fmt: skip
    ids = Ask(token_ids=[3, 4], max_tokens=7)
    completion = request_body(ids, "completions", "m", "logprobs", {"max_tokens": 1})
    assert (completion["prompt"], completion["logprobs"], completion["max_tokens"]) == (
        [3, 4],
        0,
        1,
    )
    assert request_body(ask, "chat", "m", "logprobs", {})["logprobs"] is True
    assert "return_token_ids" not in request_body(ask, "chat", "m", "chunks", {})
    with pytest.raises(RequestError, match="--endpoint completions"):
        request_body(ids, "chat", "m", "chunks", {})
    with pytest.raises(RequestError, match="--endpoint chat"):
        request_body(Ask(messages=[{}], max_tokens=1), "completions", "m", "chunks", {})
