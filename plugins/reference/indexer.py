"""The indexer of ratio-4 layers: quantized queries, scores against cached keys, the best entries."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv4_trt.plugins.reference.codecs import (
    FLOATS,
    act4,
    act8,
    dequantize,
    e2m1_decode,
    e4m3_decode,
    e8m0_decode,
)
from dsv4_trt.plugins.reference.entries import PLAIN, indexer_entry
from dsv4_trt.plugins.reference.hadamard import hadamard
from dsv4_trt.plugins.reference.pages import entry_places, layer_table, read
from dsv4_trt.plugins.reference.ragged import spans
from dsv4_trt.plugins.reference.ranking import best
from dsv4_trt.plugins.reference.rope import rotate_tail

_BLOCK_ELEMENTS = 1 << 22  # of per-head scores held at a time
_KEYS_PER_BLOCK = 4096


def indexer_q(
    *,
    q: Tensor,
    weights: Tensor,
    inv_freq: Tensor,
    positions: Tensor,
    num_heads: int,
    head_dim: int,
    row: int,
    format: str,
    scale: float,
) -> dict[str, Tensor]:
    """`q [T, num_heads * head_dim]` -> `q [T, num_heads, row]` in `format`, `weights` fp32."""
    heads = hadamard(rotate_tail(q.view(-1, num_heads, head_dim), positions, inv_freq))
    weights = (weights * scale).float()
    if format == "fp4":
        codes, scales = act4(heads)
        return {"q": codes, "q_scale": scales, "weights": weights}
    if format == "fp8":
        codes, scales = act8(heads, head_dim)
        return {"q": codes, "weights": weights * e8m0_decode(scales).squeeze(-1)}
    return {"q": heads.to(PLAIN[format]), "weights": weights}


def index_topk(
    *,
    q: Tensor,
    q_scale: Tensor | None = None,
    weights: Tensor,
    positions: Tensor,
    seq_ids: Tensor,
    table_rows: Tensor,
    query_start: Tensor,
    seq_lens: Tensor,
    decode_carrier: Tensor,
    block_table: Tensor,
    pool: Tensor,
    topk: int,
    ratio: int,
    head_dim: int,
    format: str,
    score_dtype: str,
    layer_row: int,
    entries_per_page: int,
) -> dict[str, Tensor]:
    """The best `topk` visible entries of each token, int32 `[T, topk]`, ascending, then -1."""
    out = torch.full((q.shape[0], topk), -1, dtype=torch.int32, device=q.device)
    entry = indexer_entry(format, head_dim)
    table = layer_table(block_table, layer_row, table_rows)
    for span in spans(query_start, seq_lens):
        total = span.length // ratio
        visible = (positions[span.begin : span.end].long() + 1) // ratio
        every = torch.arange(total, device=q.device)
        if total <= topk:
            shown = torch.where(every < visible.unsqueeze(1), every, -1)
            out[span.begin : span.end, :total] = shown.int()
            continue
        place = entry_places(table[span.seq], every, entries_per_page)
        keys = read(pool, place, entry, entries_per_page)
        block = max(1, _BLOCK_ELEMENTS // (q.shape[1] * min(total, _KEYS_PER_BLOCK)))
        for begin in range(span.begin, span.end, block):
            rows = slice(begin, min(begin + block, span.end))
            queries = query_values(q[rows], None if q_scale is None else q_scale[rows])
            scores = index_scores(queries, weights[rows], keys, FLOATS[score_dtype])
            picks = best(scores, topk, visible[rows.start - span.begin : rows.stop - span.begin])
            out[rows] = _ascending(picks).int()
    return {"topk": out}


def query_values(q: Tensor, q_scale: Tensor | None) -> Tensor:
    """Queries `[n, heads, row]` as `indexer_q` gives them, in fp32 `[n, heads, head_dim]`."""
    if q_scale is not None:
        return dequantize(e2m1_decode(q), q_scale)
    return e4m3_decode(q) if q.dtype is torch.float8_e4m3fn else q.float()


def index_scores(q: Tensor, weights: Tensor, keys: Tensor, dtype: torch.dtype) -> Tensor:
    """Weighted sum over heads of relu(q . k): fp32 `[n, m]`.

    `q [n, heads, d]`, `weights [n, heads]` and `keys [m, d]` are fp32. Each dot product, each weighted
    one and the sum are rounded to `dtype`.
    """
    parts = [_score_keys(q, weights, part, dtype) for part in torch.split(keys, _KEYS_PER_BLOCK)]
    return torch.cat(parts, dim=1)


def _score_keys(q: Tensor, weights: Tensor, keys: Tensor, dtype: torch.dtype) -> Tensor:
    dots = (q.flatten(0, 1) @ keys.T).view(q.shape[0], q.shape[1], keys.shape[0])
    if dtype is torch.float32:
        return torch.bmm(weights.unsqueeze(1), dots.relu_()).squeeze(1)
    weighted = dots.to(dtype).relu_() * weights.to(dtype).unsqueeze(-1)
    return weighted.sum(1, dtype=torch.float32).to(dtype).float()


def _ascending(picks: Tensor) -> Tensor:
    last = torch.iinfo(torch.int64).max
    ordered = picks.masked_fill(picks < 0, last).sort(dim=-1).values
    return ordered.masked_fill(ordered == last, -1)
