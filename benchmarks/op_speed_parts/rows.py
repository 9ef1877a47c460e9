"""Measures a case and makes its row; prints rows as a table."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import Any

import torch

from dsv4_trt.plugins.costs import H200, Cost, call_cost
from dsv4_trt.plugins.cuda_ops import DTYPES, BoundCall, bind
from dsv4_trt.plugins.library import Library
from dsv4_trt.plugins.ops import OPS
from op_speed_parts.case import Arguments, Call, Case, Peer
from op_speed_parts.timing import time_in_turn

FUSED = ("compress", "inv_rope_quant", "qkv_rope_insert", "indexer_q")  # they have a bar:
BAR = 0.8  # of the fastest peer's speed
L2_BYTES = 62e6  # of an H200, and more than a set may have to count as warm
ROTATED_BYTES = 130e6  # of all sets together, so that none is left in L2 when its turn comes
HEADER = (
    f"{'case':52}{'us':>10}{'warm us':>10}{'GB/s':>7}{'TFLOP/s':>9}{'of floor':>10}"
    f"{'peer us':>10}{'ratio':>7}{'eager us':>10}{'x eager':>9}  peer"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How thoroughly to measure."""

    rounds: int
    most_sets: int
    peers: bool


def case_cost(case: Case, first: Arguments, outputs: Mapping[str, torch.Tensor]) -> Cost:
    """What the call moves and computes."""
    attrs = {name: first[name] for name in OPS[case.op].attrs}
    ins = {n: v for n, v in first.items() if isinstance(v, torch.Tensor)}
    shapes = [
        {n: (DTYPES[t.dtype], tuple(t.shape)) for n, t in side.items()} for side in (ins, outputs)
    ]
    cost = call_cost(case.op, shapes[0], shapes[1], attrs, case.spans)
    return Cost(cost.nbytes + case.page_bytes, cost.flops, cost.is_fp8)


def measure(library: Library, case: Case, options: Options) -> dict[str, Any]:
    """The row of a case: us per call of ours, of its peers and of eager torch, cold and warm."""
    with torch.device("cuda"):
        first = case.make()
        bound = [bind(library, case.op, **first)]
        cost = case_cost(case, first, bound[0].outputs)
        count = max(1, min(options.most_sets, ceil(ROTATED_BYTES / cost.nbytes)))
        others = case.sets(first, count)[1:]
        bound += [bind(library, case.op, **arguments) for arguments in others]
    calls: dict[str, list[Call]] = {"ours": [_launch(one) for one in bound]}
    failures: dict[str, str] = {}
    for peer in case.peers if options.peers else ():
        built = _build(peer, count, failures)
        if built:
            calls[peer.name] = built
    if case.eager is not None:
        calls["eager"] = [case.eager(one) for one in (first, *others[: _eager_sets(cost) - 1])]
    times = time_in_turn(_contestants(calls, cost, count), options.rounds, failures)
    return _row(case, cost, count, times, failures)


def _launch(bound: BoundCall) -> Call:
    return bound.launch


def _eager_sets(cost: Cost) -> int:
    """Its dozens of kernels pass more than a set's bytes between them; few sets do."""
    return 8 if cost.nbytes < L2_BYTES else 2


def _contestants(
    calls: Mapping[str, Sequence[Call]], cost: Cost, count: int
) -> dict[str, Sequence[Call]]:
    cold = cost.nbytes * count > L2_BYTES
    warm = cost.nbytes < L2_BYTES
    chosen: dict[str, Sequence[Call]] = {}
    for name, sets in calls.items():
        if name == "eager":
            chosen["eager"] = sets
            continue
        if cold:
            chosen[f"{name} cold"] = sets
        if warm:
            chosen[f"{name} warm"] = sets[:1]
    return chosen


def _build(peer: Peer, count: int, failures: dict[str, str]) -> list[Call]:
    """A peer's calls, each tried once; none, and why, where it is missing or refuses."""
    try:
        calls = peer.build(count)
        calls[0]()
        torch.cuda.synchronize()
        return calls
    except Exception as error:
        failures[peer.name] = f"{type(error).__name__}: {error}".split("\n")[0][:200]
        _say_once(peer.name, failures[peer.name])
        return []


@cache
def _say_once(name: str, why: str) -> None:
    print(f"without {name}: {why}", file=sys.stderr, flush=True)


def _row(
    case: Case, cost: Cost, count: int, times: Mapping[str, float], failures: dict[str, str]
) -> dict[str, Any]:
    floor = cost.floor_us(H200)
    ours = {state: times.get(f"ours {state}") for state in ("cold", "warm")}
    us = ours["cold"] or ours["warm"]
    assert us is not None
    peers = {}
    for peer in case.peers:
        seen = {state: times.get(f"{peer.name} {state}") for state in ("cold", "warm")}
        if seen["cold"] or seen["warm"]:
            peers[peer.name] = {f"{state}_us": _round(value) for state, value in seen.items()}
            peers[peer.name]["ratio"] = _round((seen["cold"] or seen["warm"] or 0.0) / us)
            if peer.remark:
                peers[peer.name]["remark"] = peer.remark
    best = min(peers, key=lambda name: peers[name]["ratio"], default=None)
    return {
        "op": case.op,
        "case": case.label,
        "cold_us": _round(ours["cold"]),
        "warm_us": _round(ours["warm"]),
        "input_sets": count,
        "bytes": cost.nbytes,
        "flops": cost.flops,
        "gb_per_s": round(cost.nbytes / us / 1e3, 1),
        "tflop_per_s": round(cost.flops / us / 1e6, 2),
        "floor_us": _round(floor),
        "share_of_floor": round(floor / us, 4),
        "peer": best,
        "peer_us": peers[best]["cold_us"] or peers[best]["warm_us"] if best else None,
        "ratio": peers[best]["ratio"] if best else None,
        "peers": peers,
        "missing_peers": failures,
        "eager_us": _round(times.get("eager")),
        "eager_ratio": _round(times["eager"] / us) if "eager" in times else None,
    }


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def line(row: Mapping[str, Any]) -> str:
    """One line of the table."""

    def cell(value: float | None, width: int, digits: int) -> str:
        return f"{value:{width}.{digits}f}" if value is not None else f"{'-':>{width}}"

    us = row["cold_us"] or row["warm_us"]
    flops = cell(row["tflop_per_s"] if row["flops"] else None, 9, 1)
    remark = row["peers"][row["peer"]].get("remark", "") if row["peer"] else ""
    return (
        f"{row['op'] + ' ' + row['case']:52}{cell(us, 10, 2)}{cell(row['warm_us'], 10, 2)}"
        f"{cell(row['gb_per_s'], 7, 0)}{flops}{row['share_of_floor']:10.1%}"
        f"{cell(row['peer_us'], 10, 2)}{cell(row['ratio'], 7, 2)}{cell(row['eager_us'], 10, 1)}"
        f"{cell(row['eager_ratio'], 9, 1)}  {row['peer'] or ''}{f' ({remark})' if remark else ''}"
    )


def bar(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The fused ops' ratios against what they must reach."""
    ratios = {
        f"{row['op']} {row['case']}": row["ratio"]
        for row in results
        if row["op"] in FUSED and row["ratio"] is not None
    }
    below = {name: ratio for name, ratio in ratios.items() if ratio < BAR}
    return {"ratio": BAR, "ops": list(FUSED), "rows_with_peer": len(ratios), "below": below}


def free() -> None:
    """Memory of the last case, so that the next one fits."""
    gc.collect()
    if torch.cuda.memory_reserved() > 60 << 30:
        torch.cuda.empty_cache()
