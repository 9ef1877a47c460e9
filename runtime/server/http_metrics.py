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

from dsv4_trt.runtime.exported_metrics import (
    COUNTERS,
    FINISHED,
    GAUGES,
    HISTOGRAMS,
    PAGE_STATES,
    PAGES,
    exported,
)

SECONDS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

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
        found = self._snapshot
        for name, what in COUNTERS.items():
            yield CounterMetricFamily(exported(name), what, value=found[name])
        for name, what in GAUGES.items():
            yield GaugeMetricFamily(exported(name), what, value=found[name])
        for name, what in HISTOGRAMS.items():
            buckets = [*found[name]["buckets"].items()]
            yield HistogramMetricFamily(exported(name), what, buckets, found[name]["sum"])
        finished = CounterMetricFamily(exported("requests_finished"), FINISHED, labels=["reason"])
        for reason, count in found["requests_finished"].items():
            finished.add_metric([reason], count)
        yield finished
        pages = GaugeMetricFamily(exported("kv_pages"), PAGES, labels=["pool", "state"])
        for pool, states in found["pages"].items():
            for state in PAGE_STATES:
                pages.add_metric([pool, state], states[state])
        yield pages
