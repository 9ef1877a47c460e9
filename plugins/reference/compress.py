"""The compressor: groups of tokens pooled into one entry, and the state that unfinished groups need."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from dsv4_trt.plugins.reference.codecs import FLOATS
from dsv4_trt.plugins.reference.entries import EntryFormat, indexer_entry, kv_entry, plain_entry
from dsv4_trt.plugins.reference.hadamard import hadamard as hadamard_transform
from dsv4_trt.plugins.reference.norms import normalise
from dsv4_trt.plugins.reference.pages import layer_table, older_places, read, slot_places, write
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
    table_rows: Tensor,
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
    layer_row: int,
    entries_per_page: int,
    state_entries_per_page: int,
    state_window_pages: int,
) -> dict[str, Tensor]:
    """Pool the groups that tokens with a slot complete, and keep the state of tokens that have one.

    `kv_gate [T, 2 * overlap * width]` fp32 holds values, then gates. Both pools are updated in place.
    """
    lanes, tokens_per_entry = overlap * width, ratio * overlap
    series = kv_gate.clone()
    series[:, lanes:] += ape[positions.long() % ratio]
    state = _State(
        state_pool,
        layer_table(state_block_table, layer_row, table_rows),
        plain_entry("fp32", 2 * lanes),
        state_entries_per_page,
        state_window_pages,
    )
    step = _Step(series, positions.long(), seq_ids.long(), start_positions(query_start, seq_lens))
    table = layer_table(block_table, layer_row, table_rows)
    rows, place = slot_places(table, seq_ids, slot_mapping, entries_per_page)
    block = max(1, _BLOCK_ELEMENTS // (tokens_per_entry * 2 * lanes))
    pooled = [
        _pool_terms(*_terms(step, state, part, tokens_per_entry), ratio, width)
        for part in torch.split(rows, block)
    ]
    state.store(step, state_slot_mapping)  # only after all that is older has been read
    if rows.numel():
        entries = normalise(torch.cat(pooled).to(FLOATS[act_dtype]), norm_weight, eps)
        entries = rotate_tail(entries, positions[rows] // ratio * ratio, inv_freq)
        if hadamard:
            entries, entry = hadamard_transform(entries), indexer_entry(format, width)
        else:
            entry = kv_entry(format, width, 2 * inv_freq.shape[0])
        write(pool, place, entry, entries_per_page, entries)
    return {"state_pool": state_pool, "pool": pool}


class _Step(NamedTuple):
    """The tokens of this step."""

    series: Tensor  # fp32 [T, 2 * lanes], values and biased gates
    positions: Tensor  # int64 [T]
    seq_ids: Tensor  # int64 [T]
    starts: Tensor  # int64 [S], tokens each sequence held before


class _State(NamedTuple):
    """The rows of recent tokens in state pages."""

    pool: Tensor
    table: Tensor  # [S, columns]
    format: EntryFormat
    per_page: int
    window_pages: int

    def older(self, seqs: Tensor, tokens: Tensor) -> Tensor:
        """Rows of tokens from before the step, `[n, 2 * lanes]`."""
        place = older_places(self.table, seqs, tokens, self.per_page, self.window_pages)
        return read(self.pool, place, self.format, self.per_page)

    def store(self, step: _Step, slots: Tensor) -> None:
        """Keep the rows that have a slot."""
        rows, place = slot_places(self.table, step.seq_ids, slots, self.per_page, self.window_pages)
        write(self.pool, place, self.format, self.per_page, step.series[rows])


def _terms(step: _Step, state: _State, completing: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The last `count` tokens up to each completing row: `[n, count, 2 * lanes]` and positions."""
    back = torch.arange(1 - count, 1, device=completing.device)
    tokens = step.positions[completing].unsqueeze(1) + back
    seqs = step.seq_ids[completing].unsqueeze(1).expand_as(tokens)
    starts = step.starts[seqs]
    terms = step.series[(completing.unsqueeze(1) + back).clamp(min=0)]
    older = (tokens >= 0) & (tokens < starts)
    if older.any():
        terms[older] = state.older(seqs[older], tokens[older])
    return terms, tokens


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
