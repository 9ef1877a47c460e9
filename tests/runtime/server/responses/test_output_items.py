"""The typed events of a response: their order, their texts, and the official client's reading of them."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from dsv4_trt.runtime.chat.events import CallArguments, CallEnd, CallStart, Content, Reasoning
from dsv4_trt.runtime.server.failures import Failure, Refusal
from dsv4_trt.runtime.server.responses.answer import Answer
from dsv4_trt.runtime.server.responses.output_items import OutputItems
from dsv4_trt.runtime.server.responses.request_models import ResponseRequest
from dsv4_trt.runtime.server.responses.response_models import ResponseAnswer
from dsv4_trt.runtime.server.responses.response_object import begin
from dsv4_trt.runtime.server.sealed_text import unseal
from tests.runtime.server.parser_events import PIECES, named_events

OFFICIAL = TypeAdapter(ResponseStreamEvent)
LOOP = [
    Reasoning("wh"),
    Reasoning("y"),
    Content("I call."),
    CallStart(0, "f"),
    CallArguments(0, '{"x": '),
    CallArguments(0, "1}"),
    CallEnd(0),
    CallStart(1, "g"),
    CallArguments(1, "{}"),
    CallEnd(1),
]


class Run:
    """A run that brings these events, some at a time."""

    prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens = 7, 4, 9, 2

    def __init__(self, events, finish_reason="stop", chunks=1):
        self.events, self.finish_reason, self.chunks = events, finish_reason, chunks

    async def __aiter__(self):
        for start in range(0, len(self.events), self.chunks):
            events = self.events[start : start + self.chunks]
            yield [SimpleNamespace(events=events, finish_reason=None)]
        yield [SimpleNamespace(events=[], finish_reason=self.finish_reason)]


def answer(run, kept=None, *, seals=False, summary=False):
    body = ResponseRequest.model_validate({"input": "hi", "tools": []})
    output = OutputItems(seals_reasoning=seals, shows_summary=summary)
    return Answer(run, begin(body, "tiny"), output, (kept if kept is not None else []).append)


def streamed(run, **options):
    return parsed(asyncio.run(_join(answer(run, **options))))


async def _join(wanted):
    return "".join([chunk async for chunk in wanted.stream()])


def parsed(stream):
    found = named_events(stream)
    assert [event["sequence_number"] for event in found] == [*range(len(found))]
    return found


def officially(events):
    """The response as the official client's stream helper accumulates it."""
    state = ResponseStreamState(input_tools=omit, text_format=omit)
    for event in events:
        state.handle_event(OFFICIAL.validate_python(event))
    return state


def kinds(events):
    return [event["type"].removeprefix("response.") for event in events]


def without_ids(items):
    return [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in items]


def test_the_order_of_a_tool_loops_first_answer():
    assert kinds(streamed(Run(LOOP))) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


def test_reasoning_as_a_summary_has_the_summarys_events():
    events = streamed(Run(LOOP[:3]), summary=True)
    assert kinds(events)[2:9] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    item = events[-1]["response"]["output"][0]
    assert item["summary"] == [{"type": "summary_text", "text": "why"}]
    assert "content" not in item


def test_sealed_reasoning_comes_with_the_item_that_is_done():
    item = streamed(Run(LOOP[:3]), seals=True)[-1]["response"]["output"][0]
    assert unseal(item["encrypted_content"]) == "why"
    assert item["content"] == [{"type": "reasoning_text", "text": "why"}]


def test_the_items_of_a_response():
    kept = []
    response = streamed(Run(LOOP), kept=kept)[-1]["response"]
    assert kept == [response]
    assert without_ids(response["output"]) == [
        {
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "why"}],
            "status": "completed",
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "I call.", "annotations": [], "logprobs": []}
            ],
            "status": "completed",
        },
        {"type": "function_call", "name": "f", "arguments": '{"x": 1}', "status": "completed"},
        {"type": "function_call", "name": "g", "arguments": "{}", "status": "completed"},
    ]
    assert response["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 16,
    }
    ids = [item["id"] for item in response["output"]]
    assert len(set(ids)) == 4


REASONS = st.sampled_from(["stop", "length"])


@settings(deadline=None, max_examples=50)  # the first example also makes classes
@given(PIECES, REASONS, st.booleans(), st.booleans(), st.integers(1, 5))
def test_any_answer_is_the_same_streamed_whole_and_to_the_official_client(
    pieces, reason, summary, seals, chunks
):
    events = [event for piece in pieces for event in piece]
    options = {"summary": summary, "seals": seals}
    found = streamed(Run(events, reason, chunks), **options)
    whole = asyncio.run(answer(Run(events, reason), **options).whole())
    last = found[-1]["response"]
    assert without_ids(last["output"]) == without_ids(whole["output"])
    assert last["status"] == whole["status"] == ("completed" if reason == "stop" else "incomplete")
    ResponseAnswer.model_validate(whole)
    state = officially(found)
    if reason == "stop":
        text = "".join(e.text for e in events if isinstance(e, Content))
        assert state._completed_response.output_text == text


@pytest.mark.parametrize("cut", range(1, len(LOOP) + 1))
def test_an_answer_that_is_cut_anywhere_ends_its_item(cut):
    events = streamed(Run(LOOP[:cut], "length"))
    response = events[-1]["response"]
    assert events[-1]["type"] == "response.incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    statuses = [item["status"] for item in response["output"]]
    ends_in_a_call = isinstance(LOOP[cut - 1], CallEnd)
    assert statuses[-1] == ("completed" if ends_in_a_call else "incomplete")
    assert set(statuses[:-1]) <= {"completed"}
    officially(events)


def test_a_call_without_an_end_is_incomplete_though_the_answer_is_not():
    events = [*LOOP[3:5], Content("broken")]
    output = streamed(Run(events))[-1]["response"]["output"]
    assert [item["status"] for item in output] == ["incomplete", "completed"]


@pytest.mark.parametrize(("reason", "status"), [("timeout", 504), ("cancelled", 503), (None, 503)])
def test_an_answer_that_the_server_ended_is_a_failure(reason, status):
    kept = []
    wanted = answer(Run(LOOP[:2], reason), kept)
    with pytest.raises(Refusal) as caught:
        asyncio.run(wanted.whole())
    assert caught.value.failure.status == status
    assert kept == []


def test_a_failure_in_the_middle_is_the_streams_last_event():
    wanted = answer(Run(LOOP[:4], "timeout"))
    chunks = []

    async def read():
        async for chunk in wanted.stream():
            chunks.append(chunk)

    with pytest.raises(Refusal) as caught:
        asyncio.run(read())
    chunks.append(wanted.failed(caught.value.failure))
    events = parsed("".join(chunks))
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["code"] == "server_error"
    assert len(events[-1]["response"]["output"]) == 2
    officially(events)


def test_a_full_queue_has_its_own_code():
    full = Failure(status=429, kind="rate_limit_error", message="full")
    (event,) = parsed(answer(Run([])).failed(full))
    assert event["response"]["error"] == {"code": "rate_limit_exceeded", "message": "full"}
