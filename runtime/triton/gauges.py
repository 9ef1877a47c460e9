"""The engine's counters among Triton's own metrics, as `dsv4_...` with the labels of Triton's.

Triton's stub asks the server for each number and keeps Python's lock while it waits: few numbers, seldom.
If the server has died nothing answers, and the process could not even be ended by its own threads.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dsv4_trt.runtime.exported_metrics import (
    COUNTERS,
    FINISHED,
    GAUGES,
    PAGE_STATES,
    PAGES,
    exported,
)

Snapshot = Mapping[str, Any]
STDERR = 2  # the descriptor
STUCK_SECONDS = 10


def _plain(name: str, snapshot: Snapshot) -> dict[tuple[str, ...], float]:
    return {(): snapshot[name]}


def _finished(snapshot: Snapshot) -> dict[tuple[str, ...], float]:
    return {("reason", reason): n for reason, n in snapshot["requests_finished"].items()}


def _pages(snapshot: Snapshot) -> dict[tuple[str, ...], float]:
    return {
        ("pool", pool, "state", state): states[state]
        for pool, states in snapshot["pages"].items()
        for state in PAGE_STATES
    }


# name -> what it is, whether it only rises, and its values by further labels
_FAMILIES: dict[str, tuple[str, bool, Callable[[Snapshot], dict[tuple[str, ...], float]]]] = {
    **{name: (what, True, partial(_plain, name)) for name, what in COUNTERS.items()},
    **{name: (what, False, partial(_plain, name)) for name, what in GAUGES.items()},
    "requests_finished": (FINISHED, True, _finished),
    "kv_pages": (PAGES, False, _pages),
}


class Gauges:
    """Metrics of one model; `show` is called now and then with the engine's numbers."""

    def __init__(self, backend: Any, labels: Mapping[str, str]) -> None:
        """Register the families at Triton. A server without metrics refuses that."""
        self._labels = dict(labels)
        kinds = backend.MetricFamily
        self._families = {
            name: kinds(
                name=exported(name),
                description=text,
                kind=kinds.COUNTER if rises else kinds.GAUGE,
            )
            for name, (text, rises, _) in _FAMILIES.items()
        }
        self._metrics: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._shown: dict[tuple[str, tuple[str, ...]], float] = {}

    def show(self, snapshot: Snapshot) -> None:
        """Bring Triton's numbers up to those of `Metrics.snapshot`; the process ends if that is stuck."""
        faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True, file=STDERR)
        try:
            self._show(snapshot)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _show(self, snapshot: Snapshot) -> None:
        for name, (_, rises, values) in _FAMILIES.items():
            for labels, value in values(snapshot).items():
                metric = self._metric(name, labels)
                change = value - self._shown.get((name, labels), 0.0)
                if rises and change > 0:
                    metric.increment(change)
                elif not rises:
                    metric.set(value)
                self._shown[name, labels] = value

    def _metric(self, name: str, labels: tuple[str, ...]) -> Any:
        if (name, labels) not in self._metrics:
            further = dict(zip(labels[::2], labels[1::2], strict=True))
            self._metrics[name, labels] = self._families[name].Metric(labels=self._labels | further)
        return self._metrics[name, labels]
