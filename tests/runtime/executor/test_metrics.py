"""Histograms count every value once under the right bound; a snapshot is JSON with every field."""

from __future__ import annotations

import json
import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4_trt.errors import ConfigError
from dsv4_trt.kv_layout import Bucket
from dsv4_trt.runtime.exported_metrics import COUNTERS, GAUGES, HISTOGRAMS
from dsv4_trt.runtime.metrics import Histogram, Metrics, PoolPages

numbers = st.floats(-1e6, 1e6)


@given(st.sets(numbers, min_size=1, max_size=8), st.lists(numbers, max_size=40))
def test_buckets_count_the_values_up_to_their_bound(bounds, values):
    histogram = Histogram(tuple(sorted(bounds)))
    for value in values:
        histogram.observe(value)
    expected = [sum(v <= bound for v in values) for bound in (*histogram.bounds, math.inf)]
    assert histogram.cumulative() == expected
    assert histogram.count == sum(histogram.counts) == len(values)
    assert histogram.sum == pytest.approx(math.fsum(values), abs=1e-6)


def test_a_bound_belongs_to_its_own_bucket():
    histogram = Histogram((1.0, 2.0))
    for value in (1.0, 1.5, 2.0, 2.1):
        histogram.observe(value)
    assert histogram.counts == [1, 2, 1]
    assert histogram.snapshot() == {
        "buckets": {"1.0": 1, "2.0": 3, "+Inf": 4},
        "count": 4,
        "sum": pytest.approx(6.6),
    }


@pytest.mark.parametrize("bounds", [(), (1.0, 1.0), (2.0, 1.0), (1.0, math.inf), (math.nan,)])
def test_bounds_that_do_not_rise_are_refused(bounds):
    with pytest.raises(ConfigError, match="finite, rising"):
        Histogram(bounds)


def test_a_value_that_is_no_number_is_our_own_fault():
    with pytest.raises(AssertionError, match="nan"):
        Histogram((1.0,)).observe(math.nan)


def test_the_hit_rate_of_nothing_is_0():
    assert Metrics().hit_rate == 0
    assert Metrics(prompt_tokens=800, cached_tokens=512).hit_rate == 0.64


def test_each_reason_is_counted_and_an_unknown_one_is_not_invented():
    metrics = Metrics()
    for reason in ("stop", "stop", "length", "cancelled", "timeout", "error"):
        metrics.count_finished(reason)
    assert metrics.requests_finished == {
        "stop": 2,
        "length": 1,
        "cancelled": 1,
        "timeout": 1,
        "error": 1,
    }
    with pytest.raises(KeyError, match="bored"):
        metrics.count_finished("bored")


def test_metrics_share_nothing():
    one, other = Metrics(), Metrics()
    one.count_finished("stop")
    one.step_seconds.observe(1)
    assert other.snapshot() == Metrics().snapshot()


def test_a_snapshot_is_json_has_every_field_and_does_not_change():
    metrics = Metrics(prompt_tokens=100, cached_tokens=25, waiting=3, running=2)
    metrics.pages = {Bucket.LARGE: PoolPages(held=3, cached=2, free=5)}
    metrics.ttft_seconds.observe(0.3)
    found = metrics.snapshot()
    assert set(found) == {f.name for f in fields(Metrics)} | {"hit_rate"}
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["hit_rate"] == 0.25
    assert (found["waiting"], found["running"]) == (3, 2)
    assert found["pages"] == {"large": {"held": 3, "cached": 2, "free": 5, "total": 10}}
    assert found["ttft_seconds"]["buckets"]["0.25"] == 0
    assert found["ttft_seconds"]["buckets"]["0.5"] == 1
    before = json.dumps(found)
    metrics.count_finished("stop")
    metrics.ttft_seconds.observe(0.1)
    assert json.dumps(found) == before


def test_everything_but_the_hit_rate_is_exported():
    """The rate is what the two counters of tokens say."""
    exported = {*COUNTERS, *GAUGES, *HISTOGRAMS, "requests_finished", "pages", "hit_rate"}
    assert set(Metrics().snapshot()) == exported
