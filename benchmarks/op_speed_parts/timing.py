"""Times calls in CUDA graphs that take half a millisecond and more, several contestants in turn."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from math import ceil

import torch

from op_speed_parts.case import Call

GRAPH_US = 500.0  # the gap between two replays does not count in a graph of this length
MOST_CALLS = 3000  # in one graph


def time_in_turn(
    contestants: Mapping[str, Sequence[Call]], rounds: int, failures: dict[str, str]
) -> dict[str, float]:
    """Microseconds per call by contestant: median of `rounds` replays, everyone once a round.

    The calls of a contestant are taken in turn, each of them equally often. Who can not be captured
    goes into `failures` with the reason, unless it is the first one.
    """
    graphs: dict[str, tuple[torch.cuda.CUDAGraph, int]] = {}
    for name, calls in contestants.items():
        try:
            graphs[name] = _graph(calls)
        except Exception as error:  # whatever goes wrong inside a peer
            if not graphs:
                raise
            failures[name] = f"{type(error).__name__}: {error}".split("\n")[0]
    times: dict[str, list[float]] = {name: [] for name in graphs}
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(rounds):
        for name, (graph, count) in graphs.items():
            graph.replay()  # leaves the caches as the timed replay will find them
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / count)
    return {name: statistics.median(values) for name, values in times.items()}


def device_works() -> bool:
    """Whether the context has survived: after a bad access nothing runs any more."""
    try:
        return bool(torch.ones(1, device="cuda").item() == 1.0)
    except RuntimeError:
        return False


def _graph(calls: Sequence[Call]) -> tuple[torch.cuda.CUDAGraph, int]:
    """A graph of enough rounds through `calls`, and how many calls that is."""
    for call in calls[:2]:
        call()  # compiles, and sets attributes of kernels
    torch.cuda.synchronize()
    few = min(len(calls), 8)
    graph, once = _capture(calls, few), []
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        once.append(begin.elapsed_time(end) * 1e3 / few)
    rounds = max(1, ceil(GRAPH_US / max(min(once), 0.3) / len(calls)))
    count = len(calls) * min(rounds, max(1, MOST_CALLS // len(calls)))
    return _capture(calls, count), count


def _capture(calls: Sequence[Call], count: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin(capture_error_mode="relaxed")
        try:
            for i in range(count):
                calls[i % len(calls)]()
        finally:
            graph.capture_end()
    return graph
