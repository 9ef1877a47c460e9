"""Every handle ends: with errors, a full queue, shutdown, a dead executor, a dropped LLM, an exit."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
import weakref

import pytest

from dsv4_trt.errors import ConfigError, EngineFault, QueueFull
from dsv4_trt.runtime.llm import LLM
from tests.runtime.llm.llms import BUILD, greedy, open_llm
from tests.workshop import random_ids

PROMPT = random_ids(20, seed=3)
LONG = greedy(900)


@pytest.fixture
def llm(workshop, tiny_a):
    with open_llm(workshop, tiny_a, max_batch_size=2) as llm:
        yield llm


class BrokenSampler:
    """Finds no token for the rows of one request."""

    def __init__(self, sampler, request_id):
        self.sampler, self.request_id = sampler, request_id

    def sample(self, logits, rows):
        tokens = self.sampler.sample(logits, rows)
        return [
            EngineFault("its logits are NaN") if row.name == self.request_id else token
            for row, token in zip(rows, tokens, strict=True)
        ]


def break_request(llm, request_id):
    executor = llm._thread.executor
    executor.sampler = BrokenSampler(executor.sampler, request_id)


def test_an_error_of_one_request_is_raised_to_its_caller_alone(llm):
    break_request(llm, "1")
    good = llm.generate_async(PROMPT, greedy(3))
    bad = llm.generate_async(PROMPT, greedy(3), streaming=True)
    with pytest.raises(EngineFault, match="its logits are NaN"):
        next(bad)
    with pytest.raises(EngineFault, match="its logits are NaN"):
        bad.result()
    assert bad.outputs[0].finish_reason == "error"
    assert list(bad) == []
    assert good.result().outputs[0].length == 3


def test_an_error_reaches_coroutines(llm):
    break_request(llm, "0")

    async def run():
        handle = llm.generate_async(PROMPT, greedy(3), streaming=True)
        with pytest.raises(EngineFault, match="its logits are NaN"):
            await anext(handle)
        with pytest.raises(EngineFault, match="its logits are NaN"):
            await handle

    asyncio.run(run())


def test_an_error_in_a_list_ends_the_rest_of_it(llm):
    break_request(llm, "0")
    with pytest.raises(EngineFault, match="its logits are NaN"):
        llm.generate([PROMPT, PROMPT, PROMPT], [greedy(3), LONG, LONG])
    assert llm.generate(PROMPT, greedy(1)).finished
    assert llm.metrics["requests_finished"]["cancelled"] == 2


def test_a_step_that_fails_ends_its_requests_and_no_others(llm):
    engine = llm._thread.executor.stepper.engine
    step = engine.step

    def fail(*_, **__):
        engine.step = step
        raise RuntimeError("out of memory")

    engine.step = fail
    with pytest.raises(EngineFault, match="RuntimeError: out of memory"):
        llm.generate(PROMPT, greedy(3))
    assert llm.generate(PROMPT, greedy(3)).outputs[0].length == 3


def test_a_full_queue_refuses_one_more(workshop, tiny_a):
    with open_llm(workshop, tiny_a, max_batch_size=1, max_queue_size=1) as llm:
        running = llm.generate_async(PROMPT, LONG, streaming=True)
        next(running)
        waiting = llm.generate_async(PROMPT, greedy(2))
        with pytest.raises(QueueFull, match="1 sequences wait"):
            llm.generate_async(PROMPT, greedy(2))
        with pytest.raises(QueueFull):
            llm.generate([PROMPT, PROMPT], greedy(2))
        running.abort()
        assert waiting.result().outputs[0].length == 2
        alone = waiting.outputs[0].token_ids
        many = llm.generate([PROMPT] * 5, greedy(2))
        assert [request.outputs[0].token_ids for request in many] == [alone] * 5


def test_shutdown_ends_what_is_pending(workshop, tiny_a):
    llm = open_llm(workshop, tiny_a, max_batch_size=1)
    streaming = llm.generate_async(PROMPT, LONG, streaming=True)
    handles = [llm.generate_async(PROMPT, LONG) for _ in range(3)]
    next(streaming)
    llm.shutdown()
    llm.shutdown()
    for handle in (streaming, *handles):
        assert handle.result(0).outputs[0].finish_reason == "cancelled"
    assert 1 <= streaming.outputs[0].length < 900
    assert not llm._thread._thread.is_alive()
    assert llm.metrics["requests_finished"]["cancelled"] == 4
    pages = llm.metrics["pages"].values()
    assert all(pool["held"] == 0 for pool in pages)
    with pytest.raises(EngineFault, match="was shut down"):
        llm.generate(PROMPT)


def test_a_dropped_llm_ends_its_requests(workshop, tiny_a):
    llm = open_llm(workshop, tiny_a)
    handle, thread = llm.generate_async(PROMPT, LONG), llm._thread._thread
    del llm
    gc.collect()
    assert handle.result(60).outputs[0].finish_reason == "cancelled"
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("abort_works", [True, False])
def test_a_dead_executor_ends_everything(llm, abort_works):
    executor = llm._thread.executor
    steps = executor.step

    def die():
        steps()
        raise ZeroDivisionError("a bug")

    executor.step = die
    if not abort_works:
        executor.abort = None
    handles = [llm.generate_async(PROMPT, LONG, streaming=s) for s in (False, True)]
    for handle in handles:
        with pytest.raises(EngineFault, match="ZeroDivisionError: a bug") as caught:
            handle.result(60)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(EngineFault, match="no request is accepted any more"):
        llm.generate(PROMPT)
    llm.shutdown()


def test_an_idle_llm_sleeps(llm):
    llm.generate(PROMPT, greedy(1))
    executor = llm._thread.executor
    count, step = [], executor.step
    executor.step = lambda: count.append(1) or step()
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1
    assert not count
    llm.generate(PROMPT, greedy(2))
    assert len(count) == 2


def test_a_program_ends_while_requests_run(workshop, tiny_a):
    engine_dir = workshop.bundle_dir(tiny_a, build=BUILD)
    code = f"""
from dsv4_trt.runtime.llm import LLM, SamplingParams
llm = LLM({str(engine_dir)!r}, device="cpu", max_batch_size=1)
handles = [llm.generate_async([5, 6], SamplingParams(max_tokens=900), streaming=True)]
handles += [llm.generate_async([5, 6], SamplingParams(max_tokens=900)) for _ in range(2)]
next(handles[0])
print("end of the program")
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (found.returncode, found.stdout) == (0, "end of the program\n")
    assert found.stderr == ""


def test_an_llm_that_can_not_be_opened_leaves_no_thread(tmp_path):
    before = threading.active_count()
    with pytest.raises(ConfigError, match=r"holds no graph\.json"):
        LLM(tmp_path)
    assert threading.active_count() == before


@pytest.mark.parametrize("shut_down", [True, False])
def test_an_engine_goes_with_its_llm(workshop, tiny_a, shut_down):
    """At once, not at some collection: the next one may need its memory."""
    gc.collect()
    gc.disable()
    try:
        llm = open_llm(workshop, tiny_a)
        result = llm.generate(PROMPT, greedy(2))
        engine = weakref.ref(llm._engine)
        if shut_down:
            llm.shutdown()
        del llm
        assert engine() is None
    finally:
        gc.enable()
    assert result.outputs[0].length == 2
