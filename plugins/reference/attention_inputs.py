"""Queries and window keys of one layer, ready for attention; the keys also go to SWA pages."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv4_trt.plugins.reference.entries import kv_entry
from dsv4_trt.plugins.reference.pages import layer_table, slot_places, write
from dsv4_trt.plugins.reference.rope import rotate_tail


def qkv_rope_insert(
    *,
    q: Tensor,
    kv: Tensor,
    inv_freq: Tensor,
    positions: Tensor,
    seq_ids: Tensor,
    table_rows: Tensor,
    slot_mapping: Tensor,
    block_table: Tensor,
    pool: Tensor,
    num_heads: int,
    D: int,
    eps: float,
    format: str,
    layer_row: int,
    entries_per_page: int,
    window_pages: int,
) -> dict[str, Tensor]:
    """`q [T, num_heads * D]`, `kv [T, D]` -> rotated `q [T, num_heads, D]`, `kv` as it reads back.

    Rows with a slot are written to `pool` in place, to pages of the window after the step.
    """
    heads = head_norm(q.view(-1, num_heads, D), eps)
    keys = rotate_tail(kv, positions, inv_freq)
    entry = kv_entry(format, D, 2 * inv_freq.shape[0])
    table = layer_table(block_table, layer_row, table_rows)
    rows, place = slot_places(table, seq_ids, slot_mapping, entries_per_page, window_pages)
    write(pool, place, entry, entries_per_page, keys[rows])
    return {
        "q": rotate_tail(heads, positions, inv_freq),
        "kv": entry.decode(*entry.encode(keys)).to(kv.dtype),
        "pool": pool,
    }


def head_norm(q: Tensor, eps: float) -> Tensor:
    """Weightless RMS norm over the last dimension, every step rounded to the dtype of `q`."""
    mean = q.square().mean(-1, keepdim=True) + eps
    # in fp32: on CPU the bf16 rsqrt rounds once or twice, depending on where an element lies
    return q * torch.rsqrt(mean.float()).to(q.dtype)
