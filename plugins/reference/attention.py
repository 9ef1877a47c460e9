"""Attention of one shared key-value head over the window and compressed entries, with sinks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from dsv4_trt.model_spec import QUANT_BLOCK
from dsv4_trt.plugins.reference.attention_keys import (
    CompressedKeys,
    EntrySource,
    KeyPart,
    older_keys,
    window_part,
)
from dsv4_trt.plugins.reference.codecs import FLOATS, act8
from dsv4_trt.plugins.reference.entries import kv_entry
from dsv4_trt.plugins.reference.pages import layer_table
from dsv4_trt.plugins.reference.ragged import Span, spans
from dsv4_trt.plugins.reference.rope import rotate_tail

_BLOCK_ELEMENTS = 1 << 23  # of scores, or of gathered keys, held at a time
_QUERIES_PER_BLOCK = 64


def sparse_attention(
    *,
    q: Tensor,
    kv: Tensor,
    sinks: Tensor,
    inv_freq: Tensor,
    positions: Tensor,
    seq_ids: Tensor,
    table_rows: Tensor,
    query_start: Tensor,
    seq_lens: Tensor,
    decode_carrier: Tensor,
    swa_block_table: Tensor,
    swa_pool: Tensor,
    block_table: Tensor | None = None,
    pool: Tensor | None = None,
    topk: Tensor | None = None,
    ratio: int,
    sm_scale: float,
    window: int,
    format: str,
    prob_dtype: str,
    inverse_rope: bool,
    swa_layer_row: int,
    swa_entries_per_page: int,
    swa_window_pages: int,
    layer_row: int,
    entries_per_page: int,
) -> dict[str, Tensor]:
    """`q [T, N, D]`, this step's `kv [T, D]` -> `out [T, N, D]`, rotated back at the query position if
    `inverse_rope` says so.

    `topk [T, K]` lists the entries each token attends to; ids that are -1, not visible yet or out of
    range count as none. Without it all `(position + 1) // ratio` entries are attended to.
    """
    entry = kv_entry(format, q.shape[2], 2 * inv_freq.shape[0])
    swa_table = layer_table(swa_block_table, swa_layer_row, table_rows)
    swa_pages = (swa_entries_per_page, swa_window_pages)
    out = torch.zeros_like(q)
    for span in spans(query_start, seq_lens):
        older = older_keys(swa_pool, swa_table, span, entry, window, *swa_pages)
        recent = torch.cat((older, kv[span.begin : span.end].float()))
        compressed, width = None, 0
        if ratio and pool is not None and block_table is not None:
            table = layer_table(block_table, layer_row, table_rows)
            source = EntrySource(pool, table[span.seq], entry, entries_per_page)
            width = span.length // ratio if topk is None else topk.shape[1]
            shared = source.read(torch.arange(width, device=q.device)) if topk is None else None
            compressed = CompressedKeys(source, ratio, shared)
        for rows in _query_blocks(span, q, window + width, own=topk is not None):
            at = positions[rows].long()
            parts = [window_part(recent, span.start - older.shape[0], at, window)]
            if compressed is not None:
                parts += compressed.parts(at, None if topk is None else topk[rows])
            out[rows] = attend(q[rows].float(), parts, sinks, sm_scale, FLOATS[prob_dtype])
    return {"out": rotate_tail(out, positions, inv_freq, inverse=True) if inverse_rope else out}


def inv_rope_quant(*, x: Tensor, inv_freq: Tensor, positions: Tensor) -> dict[str, Tensor]:
    """`x [T, N, D]` rotated back and quantized: e4m3 `out [T, N, D]`, `scale [T, N * D / 128]`."""
    rotated = rotate_tail(x, positions, inv_freq, inverse=True)
    codes, scale = act8(rotated.flatten(1), QUANT_BLOCK)
    return {"out": codes.view(x.shape), "scale": scale}


def attend(
    q: Tensor, parts: list[KeyPart], sinks: Tensor, sm_scale: float, prob_dtype: torch.dtype
) -> Tensor:
    """Attention of fp32 `q [n, N, D]` over all parts; a query without keys gives zeros.

    The denominator takes the unrounded probabilities and the sink, the values take rounded ones.
    """
    scores = torch.cat(
        [
            (_dots(q, keys) * sm_scale).masked_fill(~seen.unsqueeze(1), float("-inf"))
            for keys, seen in parts
        ],
        dim=-1,
    )
    peak = scores.amax(-1, keepdim=True)
    peak = peak.masked_fill(peak == float("-inf"), 0.0)
    probs = (scores - peak).exp()
    total = probs.sum(-1, keepdim=True) + (sinks.unsqueeze(-1) - peak).exp()
    rounded = torch.split(
        probs.to(prob_dtype).float(), [keys.shape[-2] for keys, _ in parts], dim=-1
    )
    values = torch.stack([_mix(p, keys) for p, (keys, _) in zip(rounded, parts, strict=True)])
    return (values.sum(0) / total).masked_fill(total == 0, 0.0)


def _dots(q: Tensor, keys: Tensor) -> Tensor:
    if keys.dim() == 3:
        return torch.bmm(q, keys.transpose(1, 2))
    return (q.flatten(0, 1) @ keys.T).view(*q.shape[:2], keys.shape[0])


def _mix(probs: Tensor, keys: Tensor) -> Tensor:
    if keys.dim() == 3:
        return torch.bmm(probs, keys)
    return (probs.flatten(0, 1) @ keys).view(*probs.shape[:2], keys.shape[1])


def _query_blocks(span: Span, q: Tensor, keys: int, *, own: bool) -> Iterator[slice]:
    """Rows of a span in blocks whose scores, and gathered keys if each has its own, stay bounded."""
    heads, head_dim = q.shape[1:]
    per_query = heads * (keys + _QUERIES_PER_BLOCK) + (keys * head_dim if own else 0)
    block = min(_QUERIES_PER_BLOCK, max(1, _BLOCK_ELEMENTS // per_query))
    for begin in range(span.begin, span.end, block):
        yield slice(begin, min(begin + block, span.end))
