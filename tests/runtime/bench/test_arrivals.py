"""Arrival times: means, spreads and independence, with fixed seeds."""

from itertools import islice, pairwise
from math import inf, nan

import numpy as np
import pytest

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.bench.arrivals import arrival_times

COUNT = 20_000


def gaps(rate, burstiness=1.0, seed=0):
    return np.diff(list(islice(arrival_times(rate, burstiness, seed), COUNT + 1)))


@pytest.mark.parametrize("rate", [0.5, 40.0])
def test_a_poisson_process(rate):
    """Exponential gaps, as the Kolmogorov-Smirnov statistic has it, each independent of the last."""
    found = gaps(rate)
    assert found.mean() == pytest.approx(1 / rate, rel=0.03)
    theirs = np.arange(1, COUNT + 1) / COUNT
    distance = np.abs(1 - np.exp(-rate * np.sort(found)) - theirs).max()
    assert distance < 1.63 / np.sqrt(COUNT)  # the 1% level
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 4 / np.sqrt(COUNT)


def test_counts_of_equal_windows_have_the_variance_of_their_mean():
    times = np.cumsum(gaps(10.0))
    counts = np.histogram(times, np.arange(0, times[-1], 2.0))[0]
    assert counts.mean() == pytest.approx(20, rel=0.03)
    assert counts.var() / counts.mean() == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 16.0])
def test_burstiness_is_the_shape_of_the_gaps(burstiness):
    found = gaps(5.0, burstiness)
    assert found.mean() == pytest.approx(0.2, rel=0.05)
    assert (found.std() / found.mean()) ** 2 == pytest.approx(1 / burstiness, rel=0.1)


def test_seeds_and_start():
    first, again, other = (list(islice(arrival_times(3, 1, seed), 3000)) for seed in (7, 7, 8))
    assert first == again != other
    assert first[0] == 0
    assert all(a <= b for a, b in pairwise(first))
    assert list(islice(arrival_times(inf, 1, 0), 4)) == [0] * 4


@pytest.mark.parametrize(
    ("rate", "burstiness"), [(0, 1), (-1, 1), (nan, 1), (1, 0), (1, inf), (1, nan)]
)
def test_illegal_numbers_are_refused_before_the_first_arrival(rate, burstiness):
    with pytest.raises(ConfigError, match="expected"):
        arrival_times(rate, burstiness, 0)
