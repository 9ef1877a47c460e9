"""The schedule of a load: when requests begin, how many run, and what an end in the middle leaves."""

import asyncio
import time
from math import inf

import pytest

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.bench.ask import Ask
from dsv4_trt.runtime.bench.load import Load, Run
from dsv4_trt.runtime.bench.report import report_of

ASKS = [Ask(text=str(i), max_tokens=1) for i in range(5)]


class Sleeper:
    """Takes `seconds` for a request; a list of all that were made, and what they were asked."""

    def __init__(self, seconds, made, blocks=()):
        self.seconds, self.made, self.blocks = seconds, made, blocks
        self.asked, self.is_closed = [], False
        made.append(self)

    async def send(self, ask, record):
        self.asked.append(ask.text)
        record.sent = time.perf_counter()
        if record.index in self.blocks:
            time.sleep(0.15)  # the client itself stands still
        await asyncio.sleep(self.seconds)
        record.arrive(time.perf_counter(), 2)
        record.ended = time.perf_counter()

    async def close(self):
        self.is_closed = True


def run(seconds=0.01, *, cancel_after=None, blocks=(), **load):
    made = []
    found = Run(Load(**load), ASKS, lambda: Sleeper(seconds, made, blocks))

    async def go():
        task = asyncio.create_task(found.go())
        await asyncio.wait({task}, timeout=cancel_after)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
        else:
            task.result()

    asyncio.run(go())
    assert all(sender.is_closed for sender in made)
    assert found.num_running == 0
    return found, made


def test_a_closed_load_keeps_its_concurrency():
    found, made = run(concurrency=3, num_requests=11)
    report = report_of(found.records, found.seconds, {})
    assert (report["completed"], report["max_concurrency"], len(made)) == (11, 3, 3)
    assert sorted(text for sender in made for text in sender.asked) == sorted("01234" * 2 + "0")
    assert 0.04 <= found.seconds < 1
    assert (found.num_ended, found.num_failed, found.num_tokens) == (11, 0, 22)


def test_fewer_requests_than_concurrency():
    found, made = run(concurrency=50, num_requests=2)
    assert (len(found.records), len(made)) == (2, 2)


def test_batches_begin_together():
    found, _ = run(concurrency=4, num_requests=10, batches=True)
    starts = [record.scheduled for record in found.records]
    ends = [record.ended for record in found.records]
    for first in (0, 4, 8):
        assert max(starts[first : first + 4]) < min(ends[first : first + 4])
        assert min(starts[first:]) >= max(ends[:first], default=0)


def test_an_open_load_does_not_wait_for_answers():
    found, _ = run(seconds=0.3, request_rate=200, burstiness=1e6, num_requests=20)
    due = [record.scheduled - found.began for record in found.records]
    assert due == pytest.approx([i / 200 for i in range(20)], abs=0.002)
    assert report_of(found.records, found.seconds, {})["max_concurrency"] == 20
    assert found.seconds < 3  # one after another it would take 6


def test_a_client_that_stands_still_does_not_hide_it():
    """Requests due in a pause of the client count from when they were due (no coordinated omission)."""
    found, _ = run(seconds=0, request_rate=100, burstiness=1e6, num_requests=20, blocks=(5,))
    late = [record.delay for record in found.records]
    assert max(late) > 0.13
    assert sum(delay > 0.05 for delay in late) >= 7
    for record in found.records:
        assert record.ttft >= record.delay
    assert found.records[6].scheduled - found.records[5].scheduled == pytest.approx(0.01, abs=1e-4)


def test_a_rate_with_a_concurrency_waits_in_the_client():
    found, _ = run(seconds=0.02, request_rate=inf, concurrency=2, num_requests=6)
    report = report_of(found.records, found.seconds, {})
    assert report["max_concurrency"] == 2
    late = sorted(record.delay for record in found.records)
    assert all(
        delay >= least for delay, least in zip(late[2:], (0.02, 0.02, 0.04, 0.04), strict=True)
    )
    assert report["max_e2el_ms"] >= 60


@pytest.mark.parametrize("shape", [{"concurrency": 2}, {"request_rate": 50.0}])
def test_a_duration_lets_requests_end_and_none_begin(shape):
    found, _ = run(seconds=0.03, duration=0.2, **shape)
    assert all(record.ended is not None for record in found.records)
    assert all(record.scheduled - found.began < 0.2 for record in found.records)
    assert len(found.records) >= 5
    assert 0.1 < found.seconds < 2


@pytest.mark.parametrize("shape", [{"concurrency": 2}, {"request_rate": 200.0}])
def test_a_cancelled_load_keeps_what_there_is(shape):
    found, _ = run(seconds=0.05, cancel_after=0.3, num_requests=1000, **shape)
    report = report_of(found.records, found.seconds, {})
    assert report["completed"] >= 2
    assert report["cancelled"] >= 1
    assert report["failed"] == 0
    assert report["completed"] + report["cancelled"] == len(found.records) < 200


def test_requests_that_never_began_are_cancelled_too():
    found, _ = run(seconds=1, cancel_after=0.05, request_rate=inf, concurrency=1, num_requests=9)
    assert [record.error for record in found.records] == ["cancelled"] * 9
    assert sum(record.sent is not None for record in found.records) == 1


@pytest.mark.parametrize(
    ("load", "message"),
    [
        ({"num_requests": 1}, "neither concurrency nor request_rate"),
        ({"concurrency": 1}, "neither num_requests nor duration"),
        ({"concurrency": 0, "num_requests": 1}, "concurrency is 0"),
        ({"concurrency": 1, "num_requests": 0}, "num_requests is 0"),
        ({"concurrency": 1, "duration": 0}, "duration is 0"),
        ({"request_rate": -1, "duration": 1}, "request_rate is -1"),
        ({"request_rate": 1, "burstiness": 0, "duration": 1}, "burstiness is 0"),
        ({"request_rate": inf, "duration": 1}, "all requests begin at once"),
    ],
)
def test_loads_without_shape_or_end(load, message):
    with pytest.raises(ConfigError, match=message):
        Load(**load).check()
