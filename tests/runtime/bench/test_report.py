"""Records and reports: every number against its definition, worked out here in another way."""

import json
import math
import random

import numpy as np
import pytest

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.bench.objectives import is_good, parse_objectives
from dsv4_trt.runtime.bench.record import Record
from dsv4_trt.runtime.bench.report import report_of, summarize


def record(index=0, scheduled=0.0, sent=0.0, times=(), counts=None, **fields):
    found = Record(index=index, scheduled=scheduled, sent=sent)
    for time, count in zip(times, counts or [1] * len(times), strict=True):
        found.arrive(time, count)
    found.output_tokens, found.has_usage = found.streamed, True
    found.ended = times[-1] if times else sent
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def interpolated(values, share):
    """A percentile by its definition: linear between the two ranks around share * (n - 1)."""
    values, place = sorted(values), share * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 99, 1000])
def test_percentiles(count):
    values = [random.Random(count).lognormvariate(-3, 1) for _ in range(count)]
    found = summarize("x", values)
    for name, share in (("median", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)):
        assert found[f"{name}_x_ms"] == pytest.approx(1e3 * interpolated(values, share))
        assert found[f"{name}_x_ms"] == pytest.approx(1e3 * np.quantile(values, share))
    assert found["mean_x_ms"] == pytest.approx(1e3 * math.fsum(values) / count)
    assert found["std_x_ms"] == pytest.approx(1e3 * np.std(values))
    assert (found["min_x_ms"], found["max_x_ms"]) == (1e3 * min(values), 1e3 * max(values))


def test_known_percentiles():
    found = summarize("x", [i / 1e3 for i in range(1, 101)])
    expected = {"mean": 50.5, "median": 50.5, "p90": 90.1, "p95": 95.05, "p99": 99.01, "max": 100}
    for name, value in expected.items():
        assert found[f"{name}_x_ms"] == pytest.approx(value)
    assert set(summarize("x", []).values()) == {None}


def test_latencies_begin_when_a_request_was_due():
    """One that was due at 1, was sent at 3 and had its first token at 4 was 3 late to its user."""
    found = record(scheduled=1.0, sent=3.0, times=(4.0, 4.5, 6.0))
    assert (found.delay, found.ttft, found.e2el) == (2.0, 3.0, 5.0)
    assert found.itls == [0.5, 1.5]
    assert found.tpot == 1.0


def test_tpot_counts_tokens_and_itl_chunks():
    found = record(times=(1.0, 2.0, 4.0), counts=[1, 4, 2])
    assert found.tpot == 3.0 / 6
    assert found.itls == [1.0, 2.0]
    assert record(times=(1.0,)).tpot is None
    assert record().ttft is None


def test_a_report_of_three_requests():
    records = [
        record(
            0, 0.0, 0.0, (0.5, 1.0, 1.5), input_tokens=10, cached_tokens=4, finish_reason="length"
        ),
        record(1, 1.0, 1.1, (2.0, 4.0), input_tokens=20, finish_reason="stop"),
        record(2, 1.0, 1.0, (1.2,), error="http 429", message="full"),
    ]
    found = report_of(records, 4.0, {"ttft": 0.6})
    expected = {
        "completed": 2, "failed": 1, "cancelled": 0,
        "total_input_tokens": 30, "total_cached_tokens": 4, "total_output_tokens": 5,
        "request_throughput": 0.5, "input_throughput": 7.5, "output_throughput": 1.25,
        "total_token_throughput": 8.75, "mean_concurrency": 4.5 / 4, "max_concurrency": 3,
        "good": 1, "request_goodput": 0.25, "unchecked": 0,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["errors"] == {"http 429": 1}
    assert found["error_samples"] == {"http 429": "full"}
    assert found["finish_reasons"] == {"length": 1, "stop": 1}
    assert found["mean_ttft_ms"] == pytest.approx(750)
    assert found["mean_itl_ms"] == pytest.approx(1e3 * (0.5 + 0.5 + 2.0) / 3)
    assert found["mean_tpot_ms"] == pytest.approx(1e3 * (0.5 + 2.0) / 2)
    assert found["max_delay_ms"] == pytest.approx(100)
    assert json.loads(json.dumps(found)) == found


def test_cancelled_requests_are_neither_completed_nor_failed():
    found = report_of([record(error="cancelled", ended=None), record(times=(1.0,))], 1.0, {})
    assert (found["completed"], found["failed"], found["cancelled"]) == (1, 0, 1)
    assert found["errors"] == {}
    assert "good" not in found


def test_a_run_without_requests():
    found = report_of([], 0.0, {"tpot": 1.0})
    assert found["completed"] == found["request_throughput"] == found["good"] == 0
    assert found["p99_ttft_ms"] is None


def test_the_most_requests_at_once():
    spans = [(0, 3), (1, 2), (2, 4), (3, 5)]  # a request may take the place of one that ends
    found = [record(sent=float(a), ended=float(b)) for a, b in spans]
    assert report_of(found, 5.0, {})["max_concurrency"] == 2


def test_objectives():
    limits = parse_objectives("ttft:500, tpot:50,e2el:9000")
    assert limits == {"ttft": 0.5, "tpot": 0.05, "e2el": 9.0}
    times = (0.5, 0.55)
    assert is_good(record(times=times), {"ttft": 0.5, "tpot": 0.051})
    assert not is_good(record(times=times), {"ttft": 0.499})
    assert not is_good(record(times=times), {"ttft": 1.0, "tpot": 0.04})
    assert is_good(record(times=(0.5,)), {"tpot": 0.01})  # one token has no time per further token


@pytest.mark.parametrize(
    "text", ["", "ttft", "ttft:", "ttft:0", "ttft:nan", "ttft:inf", "x:5", "ttft:1,ttft:2"]
)
def test_illegal_objectives(text):
    with pytest.raises(ConfigError, match="goodput"):
        parse_objectives(text)


def test_a_record_as_json():
    found = record(2, 10.0, 10.5, (11.0, 12.0), input_tokens=3).as_json(10.0)
    assert json.loads(json.dumps(found)) == found
    assert (found["scheduled_s"], found["sent_s"], found["ended_s"]) == (0.0, 0.5, 2.0)
    assert (found["ttft_s"], found["itls_s"], found["chunk_tokens"]) == (1.0, [1.0], [1, 1])
