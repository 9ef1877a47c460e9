"""A run as lines to draw: latencies, tokens a second and running requests over time."""

from __future__ import annotations

import numpy as np

from dsv4_trt.runtime.bench.load import Run
from dsv4_trt.runtime.bench.record import Record


def latencies(run: Run, name: str) -> list[float]:
    """Seconds of one kind of latency of all completed requests, "itl" once for each gap."""
    completed = [record for record in run.records if record.error is None]
    if name == "itl":
        return [gap for record in completed for gap in record.itls]
    return [value for r in completed if (value := getattr(r, name)) is not None]


def token_rate(run: Run, bins: int) -> tuple[list[float], list[float]]:
    """Left edges of bins, and the tokens a second that arrived in each."""
    edges = np.linspace(0, max(run.seconds, 1e-9), bins + 1)
    times = np.concatenate([np.zeros(0), *(np.array(record.arrivals) for record in run.records)])
    weights = np.concatenate([np.zeros(0), *(np.array(record.counts) for record in run.records)])
    counts, _ = np.histogram(times - run.began, edges, weights=weights)
    return edges[:-1].tolist(), (counts / np.diff(edges)).tolist()


def num_running(run: Run) -> tuple[list[float], list[int]]:
    """Points in time where a request begins or ends, and how many run from there on."""
    moves = sorted(move for record in run.records for move in _moves(record))
    counts = np.cumsum([change for _, change in moves]) if moves else np.zeros(0, int)
    return [at - run.began for at, _ in moves], counts.tolist()


def _moves(record: Record) -> list[tuple[float, int]]:
    if record.sent is None:
        return []
    return [(record.sent, 1)] + ([] if record.ended is None else [(record.ended, -1)])
