"""The compressor: groups of tokens pooled into one entry, and the state that unfinished groups need."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv4_trt.plugins.reference.codecs import FLOATS
from dsv4_trt.plugins.reference.entries import indexer_entry, kv_entry, plain_entry
from dsv4_trt.plugins.reference.hadamard import hadamard as hadamard_transform
from dsv4_trt.plugins.reference.norms import normalise
from dsv4_trt.plugins.reference.pages import older_places, read, slot_places, write
from dsv4_trt.plugins.reference.ragged import start_positions
from dsv4_trt.plugins.reference.rope import rotate_tail

_BLOCK_ELEMENTS = 1 << 22  # of gathered rows held at a time


def compress(
    *,
    kv_gate: Tensor,
    ape: Tensor,
    norm_weight: Tensor,
    inv_freq: Tensor,
    positions: Tensor,
    seq_ids: Tensor,
    query_start: Tensor,
    seq_lens: Tensor,
    state_slot_mapping: Tensor,
    state_block_table: Tensor,
    state_pool: Tensor,
    slot_mapping: Tensor,
    block_table: Tensor,
    pool: Tensor,
    ratio: int,
    overlap: int,
    width: int,
    hadamard: bool,
    act_dtype: str,
    format: str,
    eps: float,
    window: int,
    layer_row: int,
    entries_per_page: int,
    state_entries_per_page: int,
) -> dict[str, Tensor]:
    """Pool the groups that tokens with a slot complete, and keep the state of tokens that have one.

    `kv_gate [T, 2 * overlap * width]` fp32 holds values, then gates. Both pools are updated in place.
    """
    lanes = overlap * width
    state_table = state_block_table[layer_row]
    state = plain_entry("fp32", 2 * lanes)
    series = kv_gate.clone()
    series[:, lanes:] += ape[positions.long() % ratio]

    rows, place = slot_places(block_table[layer_row], seq_ids, slot_mapping, entries_per_page)
    starts = start_positions(query_start, seq_lens)

    def terms_of(completing: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of the terms of each entry, `[n, terms, 2 * lanes]`, and their positions."""
        back = torch.arange(1 - ratio * overlap, 1, device=kv_gate.device)
        tokens = positions[completing].long().unsqueeze(1) + back
        seqs = seq_ids[completing].long().unsqueeze(1).expand_as(tokens)
        terms = series[(completing.unsqueeze(1) + back).clamp(min=0)]
        older = (tokens >= 0) & (tokens < starts[seqs])
        if older.any():
            seqs = seqs[older]
            at = older_places(
                state_table, seqs, tokens[older], starts[seqs], window, state_entries_per_page
            )
            terms[older] = read(state_pool, at, state, state_entries_per_page)
        return terms, tokens

    block = max(1, _BLOCK_ELEMENTS // (ratio * overlap * 2 * lanes))
    pooled = [_pool_terms(*terms_of(part), ratio, width) for part in torch.split(rows, block)]

    kept, at = slot_places(
        state_table, seq_ids, state_slot_mapping, state_entries_per_page, after_half=True
    )
    write(state_pool, at, state, state_entries_per_page, series[kept])
    if rows.numel():
        firsts = positions[rows] // ratio * ratio
        entries = normalise(torch.cat(pooled).to(FLOATS[act_dtype]), norm_weight, eps)
        entries = rotate_tail(entries, firsts, inv_freq)
        if hadamard:
            entries, entry = hadamard_transform(entries), indexer_entry(format, width)
        else:
            entry = kv_entry(format, width, 2 * inv_freq.shape[0])
        write(pool, place, entry, entries_per_page, entries)
    return {"state_pool": state_pool, "pool": pool}


def _pool_terms(terms: Tensor, tokens: Tensor, ratio: int, width: int) -> Tensor:
    """Softmax over the terms of each channel, fp32 `[n, width]`.

    With overlap the previous group gives its first half of channels, the group itself the second.
    """
    values, gates = terms.chunk(2, dim=-1)
    if values.shape[-1] > width:
        values = torch.cat((values[:, :ratio, :width], values[:, ratio:, width:]), dim=1)
        gates = torch.cat((gates[:, :ratio, :width], gates[:, ratio:, width:]), dim=1)
    missing = (tokens < 0).unsqueeze(-1)
    weights = gates.masked_fill(missing, float("-inf")).softmax(dim=1)
    return (values.masked_fill(missing, 0.0) * weights).sum(dim=1)
