"""Lines of a run's picture, worked out for three requests."""

import pytest

from dsv4_trt.runtime.bench.load import Load, Run
from dsv4_trt.runtime.bench.record import Record
from dsv4_trt.runtime.bench.series import latencies, num_running, token_rate


@pytest.fixture
def run():
    found = Run(Load(), [], lambda: None)
    found.began, found.seconds = 100.0, 4.0
    for index, (sent, times, error) in enumerate(
        [(100.0, (101.0, 103.5), None), (101.0, (101.5,), None), (102.0, (102.5, 102.6), "tokens")]
    ):
        record = Record(index=index, scheduled=sent, sent=sent, ended=times[-1], error=error)
        for time in times:
            record.arrive(time, 2)
        found.records.append(record)
    return found


def test_latencies_are_those_of_completed_requests(run):
    assert latencies(run.records, "ttft") == [1.0, 0.5]
    assert latencies(run.records, "itl") == [2.5]
    assert latencies(run.records, "tpot") == []  # no output tokens were counted


def test_tokens_by_time_are_those_of_all_requests(run):
    edges, rates = token_rate(run, 4)
    assert edges == [0, 1, 2, 3]
    assert rates == [0, 4, 4, 2]


def test_running_requests(run):
    times, counts = num_running(run.records, run.began)
    assert times == pytest.approx([0, 1, 1.5, 2, 2.6, 3.5])
    assert counts == [1, 2, 1, 2, 1, 0]


def test_an_empty_run():
    empty = Run(Load(), [], lambda: None)
    assert num_running(empty.records) == ([], [])
    assert token_rate(empty, 2)[1] == [0, 0]
