"""Which keys a query attends to: its window, and the compressed entries it picks or sees."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from dsv4_trt.plugins.reference.entries import EntryFormat
from dsv4_trt.plugins.reference.pages import entry_places, older_places, read
from dsv4_trt.plugins.reference.ragged import Span


class KeyPart(NamedTuple):
    """Some keys of n queries, and which query sees which of them."""

    keys: Tensor  # fp32 [m, D], or [n, m, D] where each query has its own
    seen: Tensor  # bool [n, m]


class EntrySource(NamedTuple):
    """Compressed entries of one sequence in one layer."""

    pool: Tensor
    table_row: Tensor  # [columns]
    format: EntryFormat
    per_page: int

    def read(self, entries: Tensor) -> Tensor:
        """Entries (int64 `[m]`) as fp32 `[m, D]`."""
        place = entry_places(self.table_row, entries, self.per_page)
        return read(self.pool, place, self.format, self.per_page)


class CompressedKeys(NamedTuple):
    """What the queries of one sequence can attend to besides their windows."""

    source: EntrySource
    ratio: int
    shared: Tensor | None  # all entries, fp32 [m, D]; None where each query picks its own

    def parts(self, at: Tensor, picks: Tensor | None) -> list[KeyPart]:
        """Keys of queries at positions `at [n]` with their `picks [n, K]`."""
        visible = (at + 1) // self.ratio
        if self.shared is not None:
            return [shared_part(self.shared, visible)]
        return [] if picks is None else picked_part(self.source, picks, visible)


def older_keys(
    pool: Tensor,
    table: Tensor,
    span: Span,
    format: EntryFormat,
    window: int,
    per_page: int,
    window_pages: int,
) -> Tensor:
    """Window keys from before the step that its first query still sees, fp32 `[m, D]`, oldest first."""
    first = max(0, span.start - window + 1)
    tokens = torch.arange(first, span.start, device=pool.device)
    seqs = torch.full_like(tokens, span.seq)
    place = older_places(table, seqs, tokens, per_page, window_pages)
    return read(pool, place, format, per_page)


def window_part(recent: Tensor, first: int, at: Tensor, window: int) -> KeyPart:
    """The windows of queries at consecutive positions `at`; `recent` holds the keys from `first` on."""
    low = max(int(at[0]) - window + 1, first)
    tokens = torch.arange(low, int(at[-1]) + 1, device=at.device)
    age = at.unsqueeze(1) - tokens
    return KeyPart(recent[low - first : low - first + len(tokens)], (age >= 0) & (age < window))


def shared_part(entries: Tensor, visible: Tensor) -> KeyPart:
    """All `entries [m, D]`, of which each query sees the first `visible [n]`."""
    every = torch.arange(entries.shape[0], device=visible.device)
    return KeyPart(entries, every < visible.unsqueeze(1))


def picked_part(source: EntrySource, picks: Tensor, visible: Tensor) -> list[KeyPart]:
    """The entries `picks [n, K]` of each query; an empty list if there are none.

    A pick that is -1, not visible or out of range is no key. One listed twice is a key twice.
    """
    valid = (picks >= 0) & (picks < visible.unsqueeze(1))
    used = valid.any(0)
    picks, valid = picks[:, used].long(), valid[:, used]
    if not picks.numel():
        return []
    distinct, where = torch.unique(picks[valid], return_inverse=True)
    found = source.read(distinct)
    index = torch.full_like(picks, found.shape[0])  # the row of zeros
    index[valid] = where
    keys = torch.cat((found, found.new_zeros(1, found.shape[1])))
    return [KeyPart(keys[index], valid)]
