"""The least that an op must do: bytes through device memory and arithmetic, from shapes and lengths.

Every input is read once and every output written once; of experts, only those that are picked; of pages,
only entries that the step's queries see. A floor is the larger of the two times at measured ceilings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dsv4_trt.dtypes import DType
from dsv4_trt.graph import Attr
from dsv4_trt.kv_layout import indexer_entry_bytes, kv_entry_bytes

Shapes = Mapping[str, tuple[DType, tuple[int, ...]]]  # of a call's inputs and outputs by name
_TABLES = ("block_table", "pool")  # suffixes of what is only touched in part
_GATHERS = {"embed": "weight", "mhc_head": "streams"}  # ops that read some rows of this input
_ROPE_DIM = 64


class Span(NamedTuple):
    """One sequence of a step."""

    length: int  # tokens once the step is done
    fed: int  # of them, how many come in this step

    def visible(self) -> npt.NDArray[np.int64]:
        """Tokens that each fed token sees, itself included."""
        return np.arange(self.length - self.fed + 1, self.length + 1)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call moves and computes."""

    nbytes: float
    flops: float = 0.0
    is_fp8: bool = False  # both factors are e4m3 or smaller, so the fp8 rate is the ceiling

    def floor_us(self, ceilings: Ceilings) -> float:
        """Microseconds below which no kernel gets."""
        rate = ceilings.fp8_tflops if self.is_fp8 else ceilings.bf16_tflops
        return max(self.nbytes / ceilings.copy_gbs / 1e3, self.flops / rate / 1e6)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Rates that a GPU was measured to reach."""

    name: str
    copy_gbs: float  # bytes read and written
    bf16_tflops: float
    fp8_tflops: float


H200 = Ceilings("H200", 4153.0, 773.0, 1541.0)


def call_cost(
    op: str,
    inputs: Shapes,
    outputs: Shapes,
    attrs: Mapping[str, Attr],
    spans: Sequence[Span],
) -> Cost:
    """Cost of a call in a step of these sequences; `inputs` and `outputs` may be padded."""
    touched = _dense_bytes(inputs) + _dense_bytes(outputs)
    if op in _GATHERS:  # only the rows that are asked for
        source = inputs[_GATHERS[op]]
        row = prod(source[1][1:]) * source[0].itemsize
        rows = next(iter(outputs.values()))[1][0]
        return Cost(touched - _bytes(source) + rows * row)
    if op in ("linear", "grouped_linear", "shared_expert"):
        return _product(op, inputs, attrs, touched)
    if op == "experts":
        return _experts(inputs, attrs, touched)
    if op == "router":
        return Cost(touched, 2.0 * prod(inputs["x"][1]) * inputs["gate"][1][0])
    if op == "sparse_attention":
        return _attention(inputs, attrs, touched, spans)
    if op == "index_topk":
        return _index(inputs, attrs, touched, spans)
    return Cost(touched)


def _bytes(tensor: tuple[DType, tuple[int, ...]]) -> int:
    return prod(tensor[1]) * tensor[0].itemsize


def _dense_bytes(tensors: Shapes) -> float:
    return float(
        sum(
            _bytes(tensor)
            for name, tensor in tensors.items()
            if not name.endswith(_TABLES) and name != "tid2eid"
        )
    )


def _product(op: str, inputs: Shapes, attrs: Mapping[str, Attr], touched: float) -> Cost:
    x = inputs["x"][1]
    if op == "linear":
        macs = prod(x) * inputs["weight"][1][0]
    elif op == "grouped_linear":
        macs = x[0] * prod(inputs["weight"][1])
    else:
        macs = x[0] * (prod(inputs["w13"][1]) + prod(inputs["w2"][1]))
    return Cost(touched, 2.0 * macs, is_fp8=attrs["act"] == "act8_128")


def _experts(inputs: Shapes, attrs: Mapping[str, Attr], touched: float) -> Cost:
    tokens, picks = inputs["expert_ids"][1]
    local = inputs["w13"][1][0]
    banks = sum(_bytes(inputs[name]) for name in ("w13", "w13_scale", "w2", "w2_scale"))
    distinct = local * (1 - (1 - picks / local) ** tokens)  # of uniform picks
    width, hidden = int(attrs["width"]), inputs["x"][1][1]
    flops = 6.0 * tokens * picks * width * hidden
    moved = touched - banks + banks * distinct / local
    return Cost(moved, flops, is_fp8=attrs["act"] == "act8_128")


def _attention(
    inputs: Shapes, attrs: Mapping[str, Attr], touched: float, spans: Sequence[Span]
) -> Cost:
    heads, dim = inputs["q"][1][1:]
    ratio, window = int(attrs["ratio"]), int(attrs["window"])
    picks = inputs["topk"][1][1] if "topk" in inputs else None
    entry = kv_entry_bytes(str(attrs["format"]), dim, _ROPE_DIM)
    keys = read = 0
    for span in spans:
        seen = span.visible()
        entries = seen // ratio if ratio else 0 * seen
        entries = entries if picks is None else np.minimum(entries, picks)
        keys += int((np.minimum(seen, window) + entries).sum())
        # older window keys, and of entries those that any query sees; picks can be all different
        read += min(span.length - span.fed, window - 1)
        read += int(entries.max() if picks is None else min(entries.sum(), span.length // ratio))
    return Cost(touched + read * entry, 4.0 * heads * dim * keys)


def _index(
    inputs: Shapes, attrs: Mapping[str, Attr], touched: float, spans: Sequence[Span]
) -> Cost:
    heads, dim = inputs["q"][1][1], int(attrs["head_dim"])
    entry = indexer_entry_bytes(str(attrs["format"]), dim)
    scores = read = 0
    for span in spans:
        entries = span.visible() // int(attrs["ratio"])
        if entries.max() > int(attrs["topk"]):
            scores, read = scores + int(entries.sum()), read + int(entries.max())
    return Cost(touched + read * entry, 2.0 * heads * dim * scores, is_fp8=True)
