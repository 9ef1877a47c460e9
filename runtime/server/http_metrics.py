"""Counts of HTTP requests, and everything that `/metrics` tells, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

SECONDS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_COUNTERS = {
    "requests_accepted": "requests that were accepted",
    "requests_refused": "requests that found the queue full",
    "preemptions": "sequences that gave up their pages to be computed again",
    "prompt_tokens": "tokens of prompts that began to run",
    "cached_tokens": "prompt tokens that the prefix cache held",
    "output_tokens": "tokens that were generated",
    "steps": "steps of the engine",
}
_GAUGES = {"waiting": "sequences that wait", "running": "sequences that run"}
_HISTOGRAMS = {
    "step_seconds": "time of a step",
    "queue_seconds": "time from arrival to the first step",
    "ttft_seconds": "time from arrival to the first token",
}


disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, of when it was first seen


class HttpMetrics:
    """The server's own counters; those of the engine are added when they are read."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "dsv4_http_requests",
            "HTTP requests",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "dsv4_http_request_seconds",
            "time of HTTP requests",
            ("route",),
            buckets=SECONDS,
            registry=self._registry,
        )

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request; `route` is a pattern, so that paths make no series of their own."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, snapshot: Mapping[str, Any] | None) -> bytes:
        """All metrics; None = no engine to tell of."""
        text = generate_latest(self._registry)
        if snapshot is None:
            return text
        registry = CollectorRegistry()
        registry.register(EngineCollector(snapshot))
        return text + generate_latest(registry)


class EngineCollector:
    """`Metrics.snapshot()` as Prometheus' families."""

    def __init__(self, snapshot: Mapping[str, Any]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """Each family once."""
        for name, what in _COUNTERS.items():
            yield CounterMetricFamily(f"dsv4_{name}", what, value=self._snapshot[name])
        for name, what in _GAUGES.items():
            yield GaugeMetricFamily(f"dsv4_{name}", what, value=self._snapshot[name])
        for name, what in _HISTOGRAMS.items():
            found = self._snapshot[name]
            yield HistogramMetricFamily(
                f"dsv4_{name}", what, [*found["buckets"].items()], found["sum"]
            )
        finished = CounterMetricFamily(
            "dsv4_requests_finished", "requests that ended, by reason", labels=["reason"]
        )
        for reason, count in self._snapshot["requests_finished"].items():
            finished.add_metric([reason], count)
        yield finished
        pages = GaugeMetricFamily(
            "dsv4_kv_pages", "pages of the KV pools", labels=["pool", "state"]
        )
        for pool, states in self._snapshot["pages"].items():
            for state in ("held", "cached", "free"):
                pages.add_metric([pool, state], states[state])
        yield pages
