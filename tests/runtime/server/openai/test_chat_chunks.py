"""Chunks of a streamed chat completion, from events that a run gives."""

import asyncio

import pytest

from dsv4_trt.errors import EngineFault
from dsv4_trt.runtime.chat.events import CallArguments, CallEnd, CallStart, Content, Reasoning
from dsv4_trt.runtime.server.chat_answer import ChatAnswer, ChatDelta
from dsv4_trt.runtime.server.failures import Refusal
from dsv4_trt.runtime.server.openai.chat_chunks import ChatChunks, ChunkOptions
from dsv4_trt.runtime.server.openai.chat_deltas import deltas
from dsv4_trt.runtime.server.openai.chat_logprobs import ChatLogprobWriter
from dsv4_trt.runtime.server.openai.chat_response import ChatChoice, ChatCompletionChunk
from dsv4_trt.runtime.server.openai.chat_whole import chat_choice
from dsv4_trt.runtime.server.openai.stream_fields import StreamOptions
from tests.runtime.server.openai.bodies import accepts
from tests.runtime.server.openai.runs import HEAD, StoredRun, collect, tiny_tokenizer, tokens


def delta(*events, index=0, ids=(), **fields):
    return ChatDelta(index=index, events=[*events], tokens=tokens(*ids), **fields)


def stream(run, *, n=1, logprobs=None, token_ids=False, **usage):
    """The chunks, all of which are of the declared shape, and what came last."""
    options = ChunkOptions(
        num_choices=n, logprobs=logprobs, token_ids=token_ids, usage=StreamOptions(**usage)
    )
    *chunks, last = asyncio.run(collect(ChatChunks(HEAD, run, options).events()))
    assert all(accepts(ChatCompletionChunk, chunk) for chunk in chunks)
    assert last == "[DONE]"
    return chunks


def choices(chunks):
    return [chunk["choices"][0] for chunk in chunks if chunk["choices"]]


def test_role_news_reason_done():
    run = StoredRun(
        [delta(Reasoning("r"))],
        [delta()],
        [delta(Content("a")), delta(Content("b"))],
        [delta(finish_reason="stop", stop_reason="END")],
    )
    chunks = stream(run)
    assert [c["delta"] for c in choices(chunks)] == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "r"},
        {"content": "a"},
        {"content": "b"},
        {},
    ]
    assert [c["finish_reason"] for c in choices(chunks)] == [None] * 4 + ["stop"]
    assert choices(chunks)[-1]["stop_reason"] == "END"
    head = {"id": "x-1", "created": 7, "model": "tiny", "system_fingerprint": "fp_1"}
    assert all(head.items() <= chunk.items() and "usage" not in chunk for chunk in chunks)


def test_all_roles_come_first_and_in_order():
    chunks = stream(StoredRun([delta(Content("b"), index=1)], [delta(Content("a"))]), n=3)
    assert [c["index"] for c in choices(chunks)] == [0, 1, 2, 1, 0]
    assert [c["delta"].get("role") for c in choices(chunks)] == ["assistant"] * 3 + [None] * 2


def test_events_of_one_kind_are_joined_and_none_is_moved():
    found = deltas(
        [
            Reasoning("a"),
            Reasoning("b"),
            Content("c"),
            CallStart(0, "f"),
            CallArguments(0, "{"),
            CallArguments(0, "}"),
            CallEnd(0),
            CallStart(1, "g"),
            CallArguments(1, "{"),
            Content("d"),
            Content("e"),
        ]
    )
    calls = [each["tool_calls"][0] for each in found if "tool_calls" in each]
    ids = [call.pop("id") for call in calls]
    assert len(set(ids)) == 2
    assert all(name.startswith("call_") for name in ids)
    assert found == [
        {"reasoning_content": "ab"},
        {"content": "c"},
        {
            "tool_calls": [
                {"index": 0, "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ]
        },
        {
            "tool_calls": [
                {"index": 1, "type": "function", "function": {"name": "g", "arguments": "{"}}
            ]
        },
        {"content": "de"},
    ]


def test_arguments_of_a_later_step_have_the_index_alone():
    assert deltas([CallArguments(3, '"x'), CallArguments(3, '"'), CallEnd(3)]) == [
        {"tool_calls": [{"index": 3, "function": {"arguments": '"x"'}}]}
    ]


def test_usage_comes_last_where_it_is_wanted():
    run = StoredRun([delta(Content("a"), ids=(5, 6))], [delta(finish_reason="stop")], cached=2)
    *chunks, last = stream(run, include_usage=True)
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 0},
        "prompt_cache_hit_tokens": 2,
        "prompt_cache_miss_tokens": 1,
    }


def test_usage_may_be_in_every_chunk():
    run = StoredRun([delta(Content("a"), ids=(5, 6))], [delta(Content("b"), ids=(7,))])
    found = [c["usage"]["completion_tokens"] for c in stream(run, continuous_usage_stats=True)]
    assert found == [2, 2, 3]


def test_log_probabilities_ride_on_the_first_chunk_of_a_step(tmp_path):
    writer = ChatLogprobWriter(tiny_tokenizer(tmp_path))
    run = StoredRun(
        [delta(Reasoning("r"), Content("c"), ids=(5, 9, 6), num_reasoning=2)],
        [delta(ids=(7,))],
        [delta(Content("d"), finish_reason="stop", ids=(1,))],
    )
    found = choices(stream(run, logprobs=writer, token_ids=True))
    assert [c["delta"] for c in found[1:]] == [
        {"reasoning_content": "r"},
        {"content": "c"},
        {},
        {"content": "d"},
        {},
    ]
    assert [c.get("token_ids") for c in found[1:]] == [[5, 9, 6], None, [7], [1], None]
    logprobs = [c["logprobs"] for c in found[1:]]
    assert [t["logprob"] for t in logprobs[0]["reasoning_content"]] == [-5.0, -9.0]
    assert [t["logprob"] for t in logprobs[0]["content"]] == [-6.0]
    assert logprobs[1] is None
    assert [t["logprob"] for t in logprobs[2]["content"]] == [-7.0]
    assert [t["token"] for t in logprobs[3]["content"]] == ["<|end|>"]


def test_ids_of_the_prompt_come_with_the_first_chunk():
    chunks = stream(StoredRun([delta(Content("a"), ids=(5,))]), n=2, token_ids=True)
    assert [chunk.get("prompt_token_ids") for chunk in chunks] == [[0, 1, 2], None, None]


@pytest.mark.parametrize(("reason", "status"), [("timeout", 504), ("cancelled", 503)])
def test_an_answer_that_the_server_ended_is_an_error_after_its_text(reason, status):
    run = StoredRun([delta(Content("a"), ids=(5,), finish_reason=reason)])
    options = ChunkOptions(num_choices=1, logprobs=None, token_ids=False, usage=StreamOptions())
    seen = []

    async def read():
        async for chunk in ChatChunks(HEAD, run, options).events():
            seen.append(chunk)

    with pytest.raises(Refusal) as caught:
        asyncio.run(read())
    assert caught.value.failure.status == status
    assert '"content":"a"' in seen[-1]
    assert f'"finish_reason":"{reason}"' not in "".join(seen)


def test_a_fault_of_the_engine_is_raised_after_what_there_is():
    run = StoredRun([delta(Content("a"))], error=EngineFault("x"))
    with pytest.raises(EngineFault):
        stream(run)


def test_a_whole_answer():
    answer = ChatAnswer.join(
        0,
        [
            delta(Reasoning("r"), Content("c"), ids=(5,)),
            delta(CallStart(0, "f"), CallArguments(0, "{}"), CallEnd(0), ids=(6,)),
            delta(finish_reason="tool_calls"),
        ],
    )
    choice = chat_choice(answer, logprobs=None, token_ids=True)
    assert accepts(ChatChoice, choice)
    (call,) = choice["message"].pop("tool_calls")
    assert call.pop("id").startswith("call_")
    assert call == {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert choice == {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": "c",
            "refusal": None,
            "reasoning_content": "r",
        },
        "logprobs": None,
        "finish_reason": "tool_calls",
        "stop_reason": None,
        "token_ids": [5, 6],
    }


def test_content_is_null_only_beside_calls():
    empty = chat_choice(ChatAnswer(index=0), logprobs=None, token_ids=False)["message"]
    assert empty == {"role": "assistant", "content": "", "refusal": None}
    call = ChatAnswer.join(0, [delta(CallStart(0, "f"), CallEnd(0))])
    assert chat_choice(call, logprobs=None, token_ids=False)["message"]["content"] is None
