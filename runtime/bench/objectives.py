"""Service level objectives: limits that a request has to keep to count as a good one."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.bench.record import Record

METRICS = ("ttft", "tpot", "e2el")


def parse_objectives(text: str) -> dict[str, float]:
    """`"ttft:500,tpot:50"`, in milliseconds, to seconds by metric; `ConfigError` for anything else."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition(":")
        try:
            limit = float(value)
        except ValueError:
            limit = 0.0
        if name not in METRICS or not (limit > 0 and isfinite(limit)):
            raise ConfigError(
                f"goodput has '{part}'; expected metric:milliseconds, such as ttft:500,tpot:50; the "
                f"metrics are {', '.join(METRICS)}"
            )
        if name in found:
            raise ConfigError(f"goodput names {name} twice; name it once")
        found[name] = limit / 1e3
    return found


def is_good(record: Record, objectives: Mapping[str, float]) -> bool:
    """Whether a completed request kept every limit; one without a metric, such as tpot, keeps it."""
    values = {"ttft": record.ttft, "tpot": record.tpot, "e2el": record.e2el}
    return all(
        (value := values[name]) is None or value <= limit for name, limit in objectives.items()
    )
