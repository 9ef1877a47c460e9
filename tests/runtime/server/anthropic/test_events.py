"""The order of a stream's events, that it says what the whole message says, and why an answer ends."""

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4_trt.runtime.chat.events import CallArguments, CallEnd, CallStart, Content, Reasoning
from dsv4_trt.runtime.server.anthropic.events import MessageEvents
from dsv4_trt.runtime.server.anthropic.message import content_blocks, stop_fields
from dsv4_trt.runtime.server.sealed_text import seal, signature_of, unseal
from tests.runtime.server.parser_events import PIECES, named_events

STOP = {"stop_reason": "end_turn", "stop_sequence": None}
LOOP = [
    Reasoning("wh"),
    Reasoning("y"),
    Content("I "),
    Content("call."),
    CallStart(0, "f"),
    CallArguments(0, '{"x": '),
    CallArguments(0, '"é"}'),
    CallEnd(0),
    CallStart(1, "g"),
    CallArguments(1, "{}"),
    CallEnd(1),
]


def streamed(events, *, shows_thinking=True, chunks=1):
    writer = MessageEvents("tiny", shows_thinking=shows_thinking)
    run = SimpleNamespace(prompt_tokens=7, cached_tokens=0, completion_tokens=0, reasoning_tokens=0)
    text = writer.start(run)
    run.cached_tokens, run.completion_tokens, run.reasoning_tokens = 4, 3, 1
    for start in range(0, len(events), chunks):
        text += writer.take(events[start : start + chunks])
    return named_events(text + writer.end(STOP, run))


def rebuilt(events):
    """The message that a client puts together from a stream."""
    message = events[0]["message"]
    assert events[0]["type"] == "message_start"
    parts = {}
    for event in events[1:]:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(message["content"])
                assert not parts
                message["content"].append(event["content_block"])
                parts = {event["index"]: []}
            case "content_block_delta":
                assert event["index"] in parts
                parts[event["index"]].append(event["delta"])
            case "content_block_stop":
                finish(message["content"][-1], parts.pop(event["index"]))
            case "message_delta":
                assert not parts
                message |= event["delta"] | {"usage": event["usage"]}
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    return message


def finish(block, deltas):
    if block["type"] == "tool_use":
        text = "".join(delta["partial_json"] for delta in deltas)
        block["input"] = json.loads(text) if text else {}
        return
    for delta in deltas:
        name = {"signature_delta": "signature"}.get(delta["type"], block["type"])
        block[name] += delta[name]


def without_ids(blocks):
    return [{k: v for k, v in block.items() if k != "id"} for block in blocks]


def test_the_order_of_a_tool_loops_first_answer():
    kinds = [
        event["type"]
        + (":" + event["delta"]["type"] if "index" in event and "delta" in event else "")
        for event in streamed(LOOP)
    ]
    assert kinds == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta:thinking_delta",
        "content_block_delta:thinking_delta",
        "content_block_delta:signature_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta:text_delta",
        "content_block_delta:text_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta:input_json_delta",
        "content_block_delta:input_json_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta:input_json_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_a_stream_and_a_whole_message_say_the_same():
    message = rebuilt(streamed(LOOP))
    assert without_ids(message["content"]) == [
        {"type": "thinking", "thinking": "why", "signature": signature_of("why")},
        {"type": "text", "text": "I call."},
        {"type": "tool_use", "name": "f", "input": {"x": "é"}},
        {"type": "tool_use", "name": "g", "input": {}},
    ]
    whole = content_blocks(LOOP, shows_thinking=True)
    assert without_ids(whole) == without_ids(message["content"])
    assert len({block["id"] for block in whole[2:]}) == 2
    assert message["usage"]["input_tokens"] == 3
    assert message["usage"]["cache_read_input_tokens"] == 4


@given(PIECES, st.booleans(), st.integers(1, 5))
def test_any_events_in_any_chunks_make_the_whole_message(pieces, shows_thinking, chunks):
    events = [event for piece in pieces for event in piece]
    message = rebuilt(streamed(events, shows_thinking=shows_thinking, chunks=chunks))
    whole = content_blocks(events, shows_thinking=shows_thinking)
    assert without_ids(message["content"]) == without_ids(whole)


def test_hidden_thinking_is_a_signature_alone():
    events = streamed(LOOP, shows_thinking=False)
    block = rebuilt(events)["content"][0]
    assert block == {"type": "thinking", "thinking": "", "signature": seal("why")}
    assert unseal(block["signature"]) == "why"
    assert not any("why" in json.dumps(event) for event in events)


def test_an_answer_without_a_token_is_an_empty_message():
    assert rebuilt(streamed([]))["content"] == []


def test_a_call_that_was_cut_off_is_ended_with_what_is_there():
    cut = LOOP[:6]
    events = streamed(cut)
    assert [event["type"] for event in events[-3:]] == [
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert content_blocks(cut, shows_thinking=True)[-1]["input"] == {"arguments": '{"x": '}


@pytest.mark.parametrize(
    ("finish_reason", "stop_reason", "is_clipped", "expected"),
    [
        ("stop", None, False, ("end_turn", None)),
        ("stop", 1, False, ("end_turn", None)),
        ("stop", "END", False, ("stop_sequence", "END")),
        ("length", None, False, ("max_tokens", None)),
        ("length", None, True, ("model_context_window_exceeded", None)),
        ("tool_calls", None, True, ("tool_use", None)),
    ],
)
def test_why_an_answer_ends(finish_reason, stop_reason, is_clipped, expected):
    found = stop_fields(finish_reason, stop_reason, is_clipped=is_clipped)
    assert (found["stop_reason"], found["stop_sequence"]) == expected


@given(st.text())
def test_sealed_text_comes_back(text):
    assert unseal(seal(text)) == text
    assert signature_of(text)


@pytest.mark.parametrize(
    "foreign", ["", "gAAAA", "dsv4.reasoning.%%", "dsv4.reasoning.é", "dsv4.reasoning._w"]
)
def test_a_foreign_seal_is_no_text(foreign):
    assert unseal(foreign) is None
