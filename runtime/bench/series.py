"""Records as series of values: latencies, tokens a second and running requests over time."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import numpy as np

from dsv4_trt.runtime.bench.load import Run
from dsv4_trt.runtime.bench.record import Record


def latencies(records: Iterable[Record], name: str) -> list[float]:
    """Seconds of one kind of latency of all completed requests, "itl" once for each gap."""
    completed = [record for record in records if record.error is None]
    if name == "itl":
        return [gap for record in completed for gap in record.itls]
    return [value for record in completed if (value := getattr(record, name)) is not None]


def num_running(records: Iterable[Record], began: float = 0.0) -> tuple[list[float], list[int]]:
    """Seconds since `began` at which requests begin or end, and how many run from there on."""
    moves = []
    for record in records:
        if record.sent is not None:
            moves.append((record.sent, 1))
            if record.ended is not None:
                moves.append((record.ended, -1))
    moves.sort()  # at the same time ends come first
    return [at - began for at, _ in moves], [*accumulate(change for _, change in moves)]


def token_rate(run: Run, bins: int) -> tuple[list[float], list[float]]:
    """Left edges of bins, and the tokens a second that arrived in each."""
    edges = np.linspace(0, max(run.seconds, 1e-9), bins + 1)
    times = np.concatenate([np.zeros(0), *(np.array(record.arrivals) for record in run.records)])
    weights = np.concatenate([np.zeros(0), *(np.array(record.counts) for record in run.records)])
    counts, _ = np.histogram(times - run.began, edges, weights=weights)
    return edges[:-1].tolist(), (counts / np.diff(edges)).tolist()
