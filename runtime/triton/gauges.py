"""The engine's counters among Triton's own metrics, as `dsv4_...` with the labels of Triton's.

Triton's stub asks the server for each number and keeps Python's lock while it waits: few numbers, seldom.
If the server has died nothing answers, and the process could not even be ended by its own threads.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Callable, Mapping
from typing import Any

Snapshot = Mapping[str, Any]
STDERR = 2  # the descriptor
STUCK_SECONDS = 10
_PAGES = ("held", "cached", "free")

# name -> what it is, whether it only rises, and its values by further labels
_FAMILIES: dict[str, tuple[str, bool, Callable[[Snapshot], dict[tuple[str, ...], float]]]] = {
    "dsv4_requests_waiting": ("Requests in the queue", False, lambda s: {(): s["waiting"]}),
    "dsv4_requests_running": ("Sequences in the batch", False, lambda s: {(): s["running"]}),
    "dsv4_prompt_tokens": ("Prompt tokens", True, lambda s: {(): s["prompt_tokens"]}),
    "dsv4_cached_tokens": (
        "Prompt tokens that the prefix cache held",
        True,
        lambda s: {(): s["cached_tokens"]},
    ),
    "dsv4_output_tokens": ("Generated tokens", True, lambda s: {(): s["output_tokens"]}),
    "dsv4_preemptions": ("Sequences that lost their pages", True, lambda s: {(): s["preemptions"]}),
    "dsv4_requests_finished": (
        "Ended requests by reason",
        True,
        lambda s: {("reason", reason): n for reason, n in s["requests_finished"].items()},
    ),
    "dsv4_kv_pages": (
        "Pages of each KV pool by what they are",
        False,
        lambda s: {
            ("pool", pool, "state", state): pages[state]
            for pool, pages in s["pages"].items()
            for state in _PAGES
        },
    ),
}


class Gauges:
    """Metrics of one model; `show` is called now and then with the engine's numbers."""

    def __init__(self, backend: Any, labels: Mapping[str, str]) -> None:
        """Register the families at Triton. A server without metrics refuses that."""
        self._labels = dict(labels)
        kinds = backend.MetricFamily
        self._families = {
            name: kinds(name=name, description=text, kind=kinds.COUNTER if rises else kinds.GAUGE)
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
