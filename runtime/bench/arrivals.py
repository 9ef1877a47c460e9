"""When requests of an open load arrive: a Poisson process, or one more or less bursty."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from math import inf, isfinite

import numpy as np

from dsv4_trt.errors import ConfigError

BATCH = 1024  # gaps drawn at a time


def arrival_times(rate: float, burstiness: float, seed: int) -> Iterator[float]:
    """Rising seconds since the start, without end; the first is 0.

    Gaps have a gamma distribution of mean 1 / `rate` and shape `burstiness`: 1 is a Poisson process,
    less is burstier, more is more even. An infinite rate is all at once. The same seed gives the same
    times.

    Raises `ConfigError` for a rate or burstiness that is not above 0.
    """
    if not rate > 0:
        raise ConfigError(f"request_rate is {rate}; expected requests a second, above 0, or inf")
    if not (burstiness > 0 and isfinite(burstiness)):
        raise ConfigError(f"burstiness is {burstiness}; expected a finite number above 0")
    return repeat(0.0) if rate == inf else _times(rate, burstiness, seed)


def _times(rate: float, burstiness: float, seed: int) -> Iterator[float]:
    rng = np.random.default_rng(seed)
    due = 0.0
    while True:
        for gap in rng.gamma(burstiness, 1 / (rate * burstiness), BATCH).tolist():
            yield due
            due += gap
