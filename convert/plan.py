"""What each rank tensor is made of: pure data, worked out from names and shapes alone.

A rank tensor is the concatenation of pieces. A piece is a rectangle of one official tensor, seen as
[rows, columns], with one change of format; so a piece can be streamed by rows, and every piece says where
it came from, which is what makes the inverse (`gather`) and the verification possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod

import numpy as np

from dsv4_trt.convert.layout import SourceLayout, is_block_scale
from dsv4_trt.convert.shards import local_experts, shard_of
from dsv4_trt.dtypes import DType
from dsv4_trt.mapping import Mapping
from dsv4_trt.model_spec import MX_BLOCK, QUANT_BLOCK, LayerKind, ModelSpec
from dsv4_trt.rank_tensors import TensorSpec, rank_tensors

STACKS = {"wqkv_a": ("wq_a", "wkv"), "wkv_gate": ("wkv", "wgate"), "w13": ("w1", "w3")}
ROUTED = ".ffn.experts."


class Transform(StrEnum):
    """How the bytes of a piece change on their way."""

    COPY = "copy"
    E8M0 = "e8m0"  # bytes kept, NaN refused
    F32_TO_E8M0 = "f32_to_e8m0"
    EXPERT_IDS = "i64_to_i32"
    FP4_TO_FP8 = "fp4_to_fp8"  # needs the piece's scales too
    FP4_SCALES = "fp4_block_scales"


BLOCKWISE = (Transform.FP4_TO_FP8, Transform.FP4_SCALES)


@dataclass(frozen=True, slots=True)
class Piece:
    """A rectangle of an official tensor; ranges are half open, in stored elements."""

    source: str
    rows: tuple[int, int]
    cols: tuple[int, int]
    transform: Transform
    nbytes: int  # of the result

    @property
    def scales(self) -> Piece:
        """The scales of a piece of fp4 weights, as they are."""
        group = MX_BLOCK // 2  # packed bytes that share a scale
        cols = (self.cols[0] // group, self.cols[1] // group)
        return Piece(
            self.source.removesuffix(".weight") + ".scale",
            self.rows,
            cols,
            Transform.E8M0,
            (self.rows[1] - self.rows[0]) * (cols[1] - cols[0]),
        )

    @property
    def row_step(self) -> int:
        """Rows that can only be converted together: a block where block scales are made."""
        return QUANT_BLOCK if self.transform in BLOCKWISE else 1

    def part(self, rows: tuple[int, int]) -> Piece:
        """The same piece restricted to `rows`, whole steps inside its own."""
        return replace(self, rows=rows, nbytes=self._bytes_of(rows[1] - rows[0]))

    def offset_of(self, row: int) -> int:
        """Byte of the result where `row` begins."""
        return self._bytes_of(row - self.rows[0])

    def _bytes_of(self, rows: int) -> int:
        return self.nbytes * rows // (self.rows[1] - self.rows[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A conversion: `spec` is the result's (its `expert_dtype` too), `layout` the source's."""

    spec: ModelSpec
    layout: SourceLayout
    mapping: Mapping
    mtp: bool
    official: dict[str, TensorSpec]

    @staticmethod
    def make(
        spec: ModelSpec,
        layout: SourceLayout,
        mapping: Mapping,
        official: dict[str, TensorSpec],
        *,
        mtp: bool,
    ) -> Plan:
        """Plan over the `official` tensors; raises `ConfigError` where the mapping does not fit."""
        mapping.check(spec)
        return Plan(spec=spec, layout=layout, mapping=mapping, mtp=mtp, official=official)

    def tensors(self) -> list[TensorSpec]:
        """The tensors of one rank file, the same for all ranks."""
        return list(rank_tensors(self.spec, self.mapping, mtp=self.mtp))

    def literal(self, name: str, rank: int) -> bytes | None:
        """Bytes of a tensor that has no source but the config; None for all others."""
        if name == "embed.row_offset":
            rows = self.spec.vocab_size // self.mapping.tp_size
            return np.array([rank * rows], "<i4").tobytes()
        if name == "expert_map":
            table = np.full(self.spec.n_routed_experts, -1, "<i4")
            local = local_experts(self.spec, self.mapping, rank)
            table[local.start : local.stop] = np.arange(len(local))
            return table.tobytes()
        if name == "rope.swa.inv_freq":
            return np.array(self.spec.inv_freq(LayerKind.SWA), "<f4").tobytes()
        if name == "rope.compress.inv_freq":
            return np.array(self.spec.inv_freq(LayerKind.CSA), "<f4").tobytes()
        return None

    def pieces(self, name: str, rank: int) -> Iterator[Piece]:
        """The pieces of rank tensor `name`, in order; none for a literal."""
        if self.literal(name, rank) is not None:
            return
        for source in self._sources(name, rank):
            tensor = self.official[source]
            shard = shard_of(source, self.spec, self.mapping, rank)
            rows, cols = shard.ranges(*matrix_shape(tensor))
            transform = self._transform(tensor)
            elements = (rows[1] - rows[0]) * (cols[1] - cols[0])
            nbytes = result_bytes(transform, elements, tensor.dtype.itemsize)
            yield Piece(source, rows, cols, transform, nbytes)

    def _sources(self, name: str, rank: int) -> Iterator[str]:
        stem, leaf, part = name.rsplit(".", 2) if name.count(".") >= 2 else ("", "", "")
        leaves = STACKS.get(leaf, (leaf,))
        if f"{stem}.".endswith(ROUTED):
            for expert in local_experts(self.spec, self.mapping, rank):
                for each in leaves:
                    yield f"{stem}.{expert}.{each}.{part}"
        elif leaf in STACKS:
            yield from (f"{stem}.{each}.{part}" for each in leaves)
        else:
            yield name

    def _transform(self, tensor: TensorSpec) -> Transform:
        if ROUTED in tensor.name and self.layout.expert_dtype != self.spec.expert_dtype:
            return Transform.FP4_SCALES if is_block_scale(tensor.name) else Transform.FP4_TO_FP8
        if is_block_scale(tensor.name):
            return Transform.E8M0 if tensor.dtype is DType.F8_E8M0 else Transform.F32_TO_E8M0
        return Transform.EXPERT_IDS if tensor.dtype is DType.I64 else Transform.COPY


def matrix_shape(tensor: TensorSpec) -> tuple[int, int]:
    """The tensor as [rows, columns]: its first axis and all others."""
    rows = tensor.shape[0] if tensor.shape else 1
    return rows, prod(tensor.shape[1:])


def result_bytes(transform: Transform, elements: int, itemsize: int) -> int:
    """Bytes that `elements` stored elements become."""
    match transform:
        case Transform.F32_TO_E8M0:
            return elements
        case Transform.EXPERT_IDS:
            return elements * DType.I32.itemsize
        case Transform.FP4_TO_FP8:
            return elements * 2
        case Transform.FP4_SCALES:
            return elements * MX_BLOCK // (QUANT_BLOCK * QUANT_BLOCK)
        case Transform.COPY | Transform.E8M0:
            return elements * itemsize
