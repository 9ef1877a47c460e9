"""The engine's numbers as Triton's metrics."""

import time

import pytest

from dsv4_trt.kv_layout import Bucket
from dsv4_trt.runtime.metrics import Metrics, PoolPages
from dsv4_trt.runtime.triton.gauges import Gauges
from dsv4_trt.runtime.triton.service import Service
from tests.runtime.triton import backends

LABELS = {"model": "m", "version": "1"}


@pytest.fixture(autouse=True)
def metrics():
    backends.METRICS.clear()


def value(name, *labels):
    return backends.METRICS[(name, "model=m", "version=1", *labels)].value


def test_counters_rise_to_the_engines_and_gauges_follow_them():
    numbers = Metrics(output_tokens=5, waiting=3)
    numbers.pages = {Bucket("large"): PoolPages(held=1, cached=2, free=4)}
    gauges = Gauges(backends, LABELS)
    for tokens, waiting in ((5, 3), (9, 0), (9, 2)):
        numbers.output_tokens, numbers.waiting = tokens, waiting
        gauges.show(numbers.snapshot())
        assert value("dsv4_output_tokens") == tokens
        assert value("dsv4_waiting") == waiting
    numbers.count_finished("stop")
    gauges.show(numbers.snapshot())
    assert value("dsv4_requests_finished", "reason=stop") == 1
    assert value("dsv4_requests_finished", "reason=length") == 0
    pages = [value("dsv4_kv_pages", "pool=large", f"state={s}") for s in ("held", "cached", "free")]
    assert pages == [1, 2, 4]


class Failing:
    def __init__(self):
        self.calls = 0

    def show(self, snapshot):
        self.calls += 1
        raise RuntimeError("no answer")


def test_metrics_that_fail_do_not_stop_the_watch_for_clients(llm, monkeypatch):
    monkeypatch.setattr("dsv4_trt.runtime.triton.service.SHOW_EVERY", 1)
    gauges = Failing()
    service = Service(llm, backends, has_batch_dim=False, gauges=gauges)
    time.sleep(0.3)
    request = backends.Request(text_input="x", max_tokens=900, ignore_eos=True)
    service.take(request)
    request.sender.leaves = True
    assert request.answers[0]["finish_reason"] == ["cancelled"]
    assert gauges.calls == 1
    assert "metrics are shown no more" in backends.LOGGED[-1]
    service.close()
