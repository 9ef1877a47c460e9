"""Handles of running requests: streaming, coroutines, aborts, deadlines, priorities."""

import asyncio
import time

import pytest

from dsv4_trt.runtime.llm import SamplingParams
from tests.runtime.llm.llms import greedy, open_llm, write_tokenizer
from tests.workshop import random_ids

PROMPT = random_ids(20, seed=3)
LONG = greedy(900)


@pytest.fixture(scope="module")
def llm(workshop, tiny_a, tmp_path_factory):
    tokenizer = write_tokenizer(tmp_path_factory.mktemp("streaming") / "tokenizer")
    with open_llm(workshop, tiny_a, tokenizer=tokenizer) as llm:
        yield llm


@pytest.fixture(scope="module")
def whole(llm):
    return llm.generate(PROMPT, greedy(6, logprobs=1))


def check_rounds(rounds, whole):
    """Rounds of (text, token ids, log-probabilities, whether the end) are the whole request."""
    output = whole.outputs[0]
    assert [len(found[1]) for found in rounds] == [1] * 6
    assert "".join(found[0] for found in rounds) == output.text
    assert [token for found in rounds for token in found[1]] == output.token_ids
    found = [best[token].logprob for r in rounds for token, best in zip(r[1], r[2], strict=True)]
    alone = [best[i].logprob for i, best in zip(output.token_ids, output.logprobs, strict=True)]
    assert found == pytest.approx(alone, abs=1e-4)
    assert [found[3] for found in rounds] == [False] * 5 + [True]


def one_round(step):
    output = step.outputs[0]
    return output.text_diff, output.token_ids_diff, output.logprobs_diff, step.finished


def test_rounds_of_a_stream_join_to_the_whole(llm, whole):
    handle = llm.generate_async(PROMPT, greedy(6, logprobs=1), streaming=True)
    check_rounds([one_round(step) for step in handle], whole)
    assert handle.result().outputs[0].text == whole.outputs[0].text
    assert list(handle) == []


def test_a_slow_reader_gets_the_same_rounds(llm, whole):
    handle = llm.generate_async(PROMPT, greedy(6, logprobs=1), streaming=True)
    llm.generate(PROMPT, greedy(9))
    assert handle.outputs[0].length == 0
    check_rounds([one_round(step) for step in handle], whole)


def test_coroutines(llm, whole):
    async def stream():
        handle = llm.generate_async(PROMPT, greedy(6, logprobs=1), streaming=True)
        return [one_round(step) async for step in handle]

    async def at_once():
        handle = llm.generate_async(PROMPT, greedy(6))
        found = await handle
        assert found is await handle.aresult() is handle
        return found.outputs[0].token_ids

    async def together():
        return await asyncio.gather(stream(), at_once(), stream())

    first, ids, second = asyncio.run(together())
    check_rounds(first, whole)
    check_rounds(second, whole)
    assert ids == whole.outputs[0].token_ids


def test_a_request_that_does_not_stream_has_one_round(llm, whole):
    async def rounds():
        handle = llm.generate_async(PROMPT, greedy(6))
        return [step.outputs[0].token_ids_diff async for step in handle]

    handle = llm.generate_async(PROMPT, greedy(6))
    expected = [whole.outputs[0].token_ids]
    assert [step.outputs[0].token_ids_diff for step in handle] == expected
    assert asyncio.run(rounds()) == expected


def test_a_handle_fills_up_by_itself_unless_it_streams(llm):
    handle = llm.generate_async(PROMPT, greedy(3))
    deadline = time.monotonic() + 60
    while not handle.finished:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert handle.outputs[0].length == 3


def test_sequences_of_one_request_stream_side_by_side(llm):
    params = SamplingParams(n=3, max_tokens=4, seed=4, ignore_eos=True)
    joined = [[], [], []]
    for step in llm.generate_async(PROMPT, params, streaming=True):
        for output in step.outputs:
            joined[output.index] += output.token_ids_diff
    assert joined == [output.token_ids for output in llm.generate(PROMPT, params).outputs]


def test_an_abort_ends_a_request_half_way(llm):
    handle = llm.generate_async(PROMPT, LONG, streaming=True)
    for step in handle:
        if step.outputs[0].length == 2:
            step.abort()
    output = handle.result().outputs[0]
    assert output.finish_reason == "cancelled"
    assert 2 <= output.length < 900
    handle.abort()


def test_an_abort_before_the_first_step_ends_all_sequences(llm):
    busy = [llm.generate_async(PROMPT, LONG) for _ in range(4)]
    waiting = llm.generate_async(PROMPT, SamplingParams(n=3, max_tokens=900))
    for handle in (waiting, *busy):
        handle.abort()
    found = waiting.result(60)
    assert [output.finish_reason for output in found.outputs] == ["cancelled"] * 3
    assert all(handle.result(60).finished for handle in busy)


def test_a_deadline_ends_a_request(llm, monkeypatch):
    at_once = llm.generate_async(PROMPT, LONG, timeout=0).result().outputs[0]
    assert (at_once.finish_reason, at_once.length) == ("timeout", 0)
    handle = llm.generate_async(PROMPT, LONG, timeout=1000, streaming=True)
    next(handle)
    clock = llm._thread.executor.clock
    monkeypatch.setattr(llm._thread.executor, "clock", lambda: clock() + 1000)
    output = handle.result().outputs[0]
    assert output.finish_reason == "timeout"
    assert 1 <= output.length < 900


def test_waiting_too_long_raises_and_the_request_goes_on(llm):
    handle = llm.generate_async(PROMPT, LONG)
    with pytest.raises(TimeoutError, match="it goes on"):
        handle.result(0.05)
    assert not handle.finished
    handle.abort()
    assert handle.result(60).outputs[0].finish_reason == "cancelled"


def test_a_task_that_stops_waiting_does_not_end_the_request(llm, whole):
    async def impatient():
        handle = llm.generate_async(PROMPT, greedy(6))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(handle.aresult(), 0.01)
        return await handle

    assert asyncio.run(impatient()).outputs[0].token_ids == whole.outputs[0].token_ids


def test_a_closed_event_loop_disturbs_nobody(llm, whole):
    handle = llm.generate_async(PROMPT, greedy(6))

    async def leave():
        task = asyncio.ensure_future(handle.aresult())
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())
    assert handle.result(60).outputs[0].token_ids == whole.outputs[0].token_ids


def test_a_higher_priority_runs_first(workshop, tiny_a):
    with open_llm(workshop, tiny_a, max_batch_size=1) as llm:
        running = llm.generate_async(PROMPT, greedy(4), priority=1, streaming=True)
        next(running)
        low = llm.generate_async(PROMPT, greedy(200), priority=0.1)
        high = llm.generate_async(PROMPT, greedy(2), priority=0.9)
        high.result()
        assert not low.finished
        low.abort()
        assert low.result().outputs[0].finish_reason == "cancelled"
