"""Which part of an official tensor a rank holds: along rows, along columns, or all of it.

The rules are those of `Mapping`: heads, output groups and vocabulary over all ranks; each expert's inner
width over the ranks that share it; compressors, indexer, router and hyper-connections on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsv4_trt.mapping import Mapping
from dsv4_trt.model_spec import ModelSpec

ROWS, COLS = 0, 1
SPLIT_BY_ROW = ("wq_b", "attn_sink", "wo_a")
EXPERT_SPLIT = {"w1": ROWS, "w3": ROWS, "w2": COLS}


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `index` of `parts` equal parts along `axis` (ROWS or COLS)."""

    axis: int = ROWS
    index: int = 0
    parts: int = 1

    def ranges(self, rows: int, cols: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Half-open row and column ranges of the part in a [rows, cols] tensor."""
        if self.axis == ROWS:
            size = rows // self.parts
            return (self.index * size, (self.index + 1) * size), (0, cols)
        size = cols // self.parts
        return (0, rows), (self.index * size, (self.index + 1) * size)


def shard_of(name: str, spec: ModelSpec, mapping: Mapping, rank: int) -> Shard:
    """The part of official tensor `name` (weight or scale) that `rank` holds.

    For a routed expert it is the part of a rank that holds this expert at all.
    """
    parts = name.split(".")
    if name in ("embed.weight", "head.weight"):
        return Shard(ROWS, rank, mapping.tp_size)
    if "experts" in parts:
        axis = EXPERT_SPLIT[parts[-2]]
        return Shard(axis, mapping.moe_tp_rank(rank), mapping.moe_tp_size)
    if "shared_experts" in parts:
        if not mapping.shared_expert_is_sharded(spec):
            return Shard()
        return Shard(EXPERT_SPLIT[parts[-2]], rank, mapping.tp_size)
    if "indexer" in parts or "attn" not in parts:
        return Shard()
    if "wo_b" in parts:
        return Shard(COLS, rank, mapping.tp_size)
    if any(leaf in parts for leaf in SPLIT_BY_ROW):
        return Shard(ROWS, rank, mapping.tp_size)
    return Shard()


def local_experts(spec: ModelSpec, mapping: Mapping, rank: int) -> range:
    """Global ids of the experts that `rank` holds, in the order it holds them."""
    count = spec.n_routed_experts // mapping.moe_ep_size
    first = mapping.ep_rank(rank) * count
    return range(first, first + count)
