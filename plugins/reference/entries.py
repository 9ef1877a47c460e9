"""How one entry of a cache class is written as bytes: the planar fields of a page and their codecs.

A page holds the first field of all its entries, then the second. Byte sizes are those of `kv_layout`:

    KV fp8         448 e4m3 + 64 bf16 | 7 e8m0 scales + 1 pad (0)
    indexer fp8    128 e4m3           | one fp32 scale
    indexer fp4    64 packed pairs    | 4 e8m0 scales
    plain          the channels as bf16 or fp32 (KV, indexer and compressor state)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor

from dsv4_trt.kv_layout import KV_BLOCK
from dsv4_trt.model_spec import MX_BLOCK
from dsv4_trt.plugins.reference.codecs import (
    act4,
    act8,
    dequantize,
    e2m1_decode,
    e4m3_decode,
    e8m0_decode,
)

PLAIN = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True, slots=True)
class EntryFormat:
    """Fields of an entry and the two codecs."""

    field_bytes: tuple[int, ...]
    encode: Callable[[Tensor], tuple[Tensor, ...]]  # [n, width] -> int8 [n, bytes], one per field
    decode: Callable[..., Tensor]  # the fields -> fp32 [n, width]


@cache
def kv_entry(format: str, head_dim: int, rope_dim: int) -> EntryFormat:
    """A window or compressed KV entry, the last `rope_dim` of its channels rotated."""
    if format != "fp8":
        return plain_entry(format, head_dim)
    nope = head_dim - rope_dim
    scales = nope // KV_BLOCK
    return EntryFormat(
        (nope + 2 * rope_dim, scales + scales % 2),
        partial(_encode_kv, nope=nope),
        partial(_decode_kv, nope=nope),
    )


@cache
def indexer_entry(format: str, width: int) -> EntryFormat:
    """An indexer key."""
    if format == "fp4":
        return EntryFormat((width // 2, width // MX_BLOCK), act4, _decode_fp4)
    if format == "fp8":
        return EntryFormat((width, 4), _encode_fp8, _decode_fp8)
    return plain_entry(format, width)


@cache
def plain_entry(format: str, width: int) -> EntryFormat:
    """Channels stored as they are."""
    dtype = PLAIN[format]
    return EntryFormat(
        (width * dtype.itemsize,),
        lambda x: (_bytes(x.to(dtype)),),
        lambda row: row.view(dtype).float(),
    )


def _bytes(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.int8)


def _encode_kv(x: Tensor, nope: int) -> tuple[Tensor, ...]:
    codes, scale = act8(x[:, :nope], KV_BLOCK)
    rotated = _bytes(x[:, nope:].to(torch.bfloat16))
    pad = scale.new_zeros(scale.shape[0], scale.shape[1] % 2)
    return torch.cat((codes.view(torch.int8), rotated), -1), torch.cat((scale, pad), -1)


def _decode_kv(row: Tensor, scale: Tensor, nope: int) -> Tensor:
    values = dequantize(e4m3_decode(row[:, :nope]), scale[:, : nope // KV_BLOCK].contiguous())
    rotated = row[:, nope:].contiguous().view(torch.bfloat16).float()
    return torch.cat((values, rotated), -1)


def _decode_fp4(packed: Tensor, scale: Tensor) -> Tensor:
    return dequantize(e2m1_decode(packed), scale)


def _encode_fp8(x: Tensor) -> tuple[Tensor, ...]:
    codes, scale = act8(x, x.shape[-1])
    return codes.view(torch.int8), _bytes(e8m0_decode(scale))


def _decode_fp8(codes: Tensor, scale: Tensor) -> Tensor:
    return e4m3_decode(codes) * scale.view(torch.float32)
