"""What a run's records come to, under the names that `vllm bench serve` gives its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dsv4_trt.runtime.bench.objectives import is_good
from dsv4_trt.runtime.bench.record import CANCELLED, Record
from dsv4_trt.runtime.bench.series import latencies, num_running

PERCENTILES = (90, 95, 99)
LATENCIES = ("ttft", "tpot", "itl", "e2el", "delay")


def summarize(name: str, seconds: Iterable[float]) -> dict[str, float | None]:
    """`mean_NAME_ms` and the like; None for all where there are no values.

    A percentile between two values is interpolated linearly, and `std` is that of the values
    themselves, as numpy has both by default.
    """
    values = np.fromiter(seconds, np.float64) * 1e3
    names = ["mean", "std", "min", "median", *(f"p{p}" for p in PERCENTILES), "max"]
    if not values.size:
        return {f"{of}_{name}_ms": None for of in names}
    order = [values.min(), *np.percentile(values, (50, *PERCENTILES)), values.max()]
    found = [values.mean(), values.std(), *order]
    return {f"{of}_{name}_ms": float(value) for of, value in zip(names, found, strict=True)}


def report_of(
    records: Sequence[Record], seconds: float, objectives: Mapping[str, float]
) -> dict[str, Any]:
    """Counts, rates and latencies of a run that took `seconds`; only completed requests count.

    Requests that were cancelled are neither completed nor failed.
    """
    completed = [record for record in records if record.error is None]
    errors = Counter(record.error for record in records if record.error is not None)
    cancelled = errors.pop(CANCELLED, 0)
    prompt = sum(record.input_tokens or 0 for record in completed)
    output = sum(record.output_tokens for record in completed)
    found: dict[str, Any] = {
        "duration": seconds,
        "completed": len(completed),
        "failed": errors.total(),
        "cancelled": cancelled,
        "errors": dict(errors.most_common()),
        "error_samples": _samples(records),
        "finish_reasons": dict(Counter(str(r.finish_reason) for r in completed).most_common()),
        "unchecked": sum(not record.is_checked for record in completed),
        "total_input_tokens": prompt,
        "total_cached_tokens": sum(record.cached_tokens for record in completed),
        "total_output_tokens": output,
        "request_throughput": _rate(len(completed), seconds),
        "input_throughput": _rate(prompt, seconds),
        "output_throughput": _rate(output, seconds),
        "total_token_throughput": _rate(prompt + output, seconds),
        "mean_concurrency": _rate(sum(r.e2el or 0.0 for r in completed), seconds),
        "max_concurrency": max(num_running(records)[1], default=0),
    }
    if objectives:
        good = sum(is_good(record, objectives) for record in completed)
        found["good"] = good
        found["request_goodput"] = _rate(good, seconds)
    for name in LATENCIES:
        found |= summarize(name, latencies(records, name))
    return found


def _samples(records: Sequence[Record]) -> dict[str, str]:
    """The first message of each kind of failure."""
    found: dict[str, str] = {}
    for record in records:
        if record.error not in (None, CANCELLED):
            found.setdefault(str(record.error), record.message)
    return found


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0
