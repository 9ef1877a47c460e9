"""Many threads and coroutines on one executor: everybody gets what they get alone, everything ends."""

import asyncio
import random
from threading import Thread

import pytest

from dsv4_trt.errors import Dsv4Error, EngineFault, QueueFull
from dsv4_trt.runtime.executor_thread import ExecutorThread
from dsv4_trt.runtime.request_output import RequestOutput
from tests.runtime.executor.fake_reference import expected
from tests.runtime.executor.serving import Serving, check_invariants, prompt, request


class Clients:
    """Threads that submit random requests, read them in random ways and abort some."""

    def __init__(self, thread, count, each):
        self.thread = thread
        self.handles = []
        self.refused = 0
        self.failures = []
        self._threads = [Thread(target=self._run, args=(at, each)) for at in range(count)]

    def run(self):
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in self._threads)
        assert not self.failures

    def _run(self, at, each):
        try:
            rng = random.Random(at)
            for number in range(each):
                self._one(rng, f"{at}-{number}")
        except BaseException as error:
            self.failures.append(error)

    def _one(self, rng, name):
        n, tokens = rng.choice((1, 1, 3)), rng.randint(1, 12)
        ids = prompt(rng.randint(1, 400), seed=rng.randint(0, 5))
        ask = request(name, ids, n=n, max_tokens=tokens, priority=rng.choice((0.2, 0.5, 0.9)))
        handle = RequestOutput(ask, self.thread.cancel, streaming=rng.random() < 0.5)
        try:
            self.thread.submit(ask, handle)
        except QueueFull:
            self.refused += 1
            return
        self.handles.append((ask, handle))
        aborts = rng.random() < 0.2
        if aborts:
            handle.abort()
        reader = rng.choice((_wait, _iterate, _await))
        reader(handle)
        assert handle.finished
        self._check(ask, handle, aborts)

    def _check(self, ask, handle, aborted):
        for output in handle.outputs:
            tokens, reason = expected(ask.prompt_ids, ask.params, output.index)
            assert output.token_ids == tokens[: output.length]
            if not aborted:
                assert (output.token_ids, output.finish_reason) == (tokens, reason)


def _wait(handle):
    handle.result(100)


def _iterate(handle):
    joined = [[] for _ in handle.outputs]
    for step in handle:
        for output in step.outputs:
            joined[output.index] += output.token_ids_diff
    assert joined == [output.token_ids for output in handle.outputs]


def _await(handle):
    async def read():
        joined = [[] for _ in handle.outputs]
        async for step in handle:
            for output in step.outputs:
                joined[output.index] += output.token_ids_diff
        return joined

    assert asyncio.run(read()) == [output.token_ids for output in handle.outputs]


@pytest.mark.parametrize("max_queue_size", [1000, 2])
def test_everybody_gets_what_they_get_alone(max_queue_size):
    serving = Serving(max_queue_size=max_queue_size)
    thread = ExecutorThread(serving.executor)
    clients = Clients(thread, count=6, each=12)
    clients.run()
    thread.stop()
    metrics = serving.executor.metrics
    assert metrics.requests_accepted == len(clients.handles)
    assert metrics.requests_refused == clients.refused
    assert sum(metrics.requests_finished.values()) == len(clients.handles)
    assert (clients.refused > 0) == (max_queue_size == 2)
    assert not thread._handles
    check_invariants(serving.executor)
    assert all(pool.num_held == 0 for pool in serving.executor.stepper.pools.values())


@pytest.mark.parametrize("dies", [False, True])
def test_handles_end_whenever_the_thread_does(dies):
    """Threads go on submitting while the executor is stopped, or breaks."""
    serving = Serving()
    thread = ExecutorThread(serving.executor)
    handles = []

    def submit(at):
        for number in range(100000):
            ask = request(f"{at}-{number}", [5] * 20, max_tokens=50)
            handle = RequestOutput(ask, thread.cancel, streaming=number % 2 == 0)
            try:
                thread.submit(ask, handle)
            except QueueFull:
                continue
            except EngineFault:
                return
            handles.append(handle)

    clients = [Thread(target=submit, args=(at,)) for at in range(3)]
    for client in clients:
        client.start()
    while len(handles) < 50:
        pass
    if dies:
        serving.executor.scheduler.schedule = None
    else:
        thread.stop()
    for client in clients:
        client.join(60)
        assert not client.is_alive()
    for handle in handles:
        try:
            handle.result(10)
        except Dsv4Error:
            assert dies
    reasons = {output.finish_reason for handle in handles for output in handle.outputs}
    assert reasons <= {"length", "error" if dies else "cancelled"}
    assert not thread._handles
