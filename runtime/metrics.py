"""What an executor counts, as plain numbers that a server can export. Knows no torch.

One thread writes. Another may read: it sees each number whole, but of a step that is under way perhaps
only some.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import isfinite
from typing import Any, get_args

from dsv4_trt.errors import ConfigError
from dsv4_trt.kv_layout import Bucket
from dsv4_trt.runtime.request import FinishReason

STEP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
WAIT_SECONDS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Histogram:
    """Counts of values by upper bound, as Prometheus has them: a bound belongs to its bucket."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Raise `ConfigError` unless `bounds` are finite and rise; one bucket more takes the rest."""
        rising = all(low < high for low, high in pairwise(bounds))
        if not bounds or not rising or not all(map(isfinite, bounds)):
            raise ConfigError(f"histogram bounds are {bounds}; expected finite, rising numbers")
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one finite value."""
        assert isfinite(value), f"a histogram was given {value}"
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        """How many values were at most each bound, and at last how many there were."""
        return list(accumulate(self.counts))

    def snapshot(self) -> dict[str, Any]:
        """As JSON data: cumulative `buckets` by upper bound, written as text, the last "+Inf"."""
        buckets = dict(zip([*map(str, self.bounds), "+Inf"], self.cumulative(), strict=True))
        return {"buckets": buckets, "count": buckets["+Inf"], "sum": self.sum}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPages:
    """Where the pages of one pool are."""

    held: int  # by sequences
    cached: int  # held by nobody, in the prefix cache
    free: int

    @property
    def total(self) -> int:
        """All pages of the pool."""
        return self.held + self.cached + self.free


@dataclass(slots=True, kw_only=True)
class Metrics:
    """Counters since the start, histograms of seconds, and gauges of the moment."""

    requests_accepted: int = 0
    requests_finished: dict[FinishReason, int] = field(
        default_factory=lambda: dict.fromkeys(get_args(FinishReason), 0)
    )
    requests_refused: int = 0  # because the queue was full
    preemptions: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0  # prompt tokens that the prefix cache held
    output_tokens: int = 0
    steps: int = 0
    step_seconds: Histogram = field(default_factory=lambda: Histogram(STEP_SECONDS))
    queue_seconds: Histogram = field(default_factory=lambda: Histogram(WAIT_SECONDS))
    ttft_seconds: Histogram = field(default_factory=lambda: Histogram(WAIT_SECONDS))
    waiting: int = 0
    running: int = 0
    pages: Mapping[Bucket, PoolPages] = field(default_factory=dict)  # replaced, never changed

    def count_finished(self, reason: FinishReason) -> None:
        """Count one terminal event."""
        self.requests_finished[reason] += 1

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens that the prefix cache held; 0 when there were none."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def snapshot(self) -> dict[str, Any]:
        """All of it as plain JSON data, under the names of the fields."""
        pages = {
            str(bucket): {"held": p.held, "cached": p.cached, "free": p.free, "total": p.total}
            for bucket, p in self.pages.items()
        }
        return {
            "requests_accepted": self.requests_accepted,
            "requests_finished": dict(self.requests_finished),
            "requests_refused": self.requests_refused,
            "preemptions": self.preemptions,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "hit_rate": self.hit_rate,
            "output_tokens": self.output_tokens,
            "steps": self.steps,
            "step_seconds": self.step_seconds.snapshot(),
            "queue_seconds": self.queue_seconds.snapshot(),
            "ttft_seconds": self.ttft_seconds.snapshot(),
            "waiting": self.waiting,
            "running": self.running,
            "pages": pages,
        }
