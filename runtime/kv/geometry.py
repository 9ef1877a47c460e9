"""The page arithmetic of `kv_layout` for all classes and all sequences of a step at once.

Arrays are `[classes, sequences]`, or `[classes, tokens]` for slots; constants are `[classes, 1]`. A class
that keeps all tokens is a window that nothing ever leaves. Pages, groups and ratios are powers of two:
shifts and masks, because division is what takes the time here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dsv4_trt.kv_layout import KEEP_ALL, ClassLayout
from dsv4_trt.runtime.batch import IntArray
from dsv4_trt.runtime.kv.pool import IndexArray


class Moves(NamedTuple):
    """Logical pages that come and go, `num` of them from `first` on, both `[2 * classes, sequences]`.

    First the pages that each class gets, then those that leave its window.
    """

    first: IntArray
    num: IntArray

    @property
    def num_new(self) -> IntArray:
        """Pages to take, `[classes, sequences]`."""
        return self.num[: len(self.num) // 2]

    def flat(self) -> FlatPages:
        """One item for each page, in the order of the first dimension."""
        where = np.flatnonzero(self.num != 0)
        moves = where // self.num.shape[1]
        seqs = where - moves * self.num.shape[1]
        logical, num = self.first.ravel()[where], self.num.ravel()[where]
        if num.max(initial=0) > 1:
            before = np.repeat(np.cumsum(num) - num, num)
            moves, seqs = np.repeat(moves, num), np.repeat(seqs, num)
            logical = np.repeat(logical, num) + np.arange(before.size) - before
        return FlatPages(moves, seqs, logical)


class FlatPages(NamedTuple):
    """Pages that come, then pages that go, class by class; arrays `[n]`."""

    moves: IndexArray  # class that gets the page, or number of classes + class that lets it go
    seqs: IndexArray  # which sequence of the step
    logical: IntArray


class Geometry:
    """Constants of some classes, and what they say about a step."""

    def __init__(self, classes: Sequence[ClassLayout]) -> None:
        self._round_up = _column([kv.tokens_per_page - 1 for kv in classes])
        self._to_page = _column([_log2(kv.tokens_per_page) for kv in classes])
        self._to_group = _column([-(kv.group or 1) for kv in classes])
        self._before = _column([kv.kept_before for kv in classes])
        self._last = _column([kv.ratio - 1 for kv in classes])
        self._to_entry = _column([_log2(kv.ratio) for kv in classes])
        rings = [KEEP_ALL if kv.window is None else kv.window_pages for kv in classes]
        per_page = [1 if kv.window is None else kv.entries_per_page for kv in classes]
        self._ring = np.array([*rings, *rings])
        self._span = _column([ring * n for ring, n in zip(rings, per_page, strict=True)])

    def moves(self, starts: IntArray, ends: IntArray) -> Moves:
        """Pages that come and go as sequences go from `starts` to `ends` tokens."""
        held = (starts + self._round_up) >> self._to_page
        stop = (ends + self._round_up) >> self._to_page
        oldest = self._oldest(ends) >> self._to_page
        first = np.concatenate([np.maximum(held, oldest), self._oldest(starts) >> self._to_page])
        num = np.concatenate([stop, np.minimum(held, oldest)])
        num -= first
        return Moves(first, num)

    def columns(self, pages: FlatPages) -> IndexArray:
        """Column of each page in its class's ring (in the whole table where there is none)."""
        columns: IndexArray = pages.logical % self._ring[pages.moves]
        return columns

    def slots(self, ends: IntArray, lengths: IntArray, positions: IntArray, out: IntArray) -> None:
        """Write slot mappings `[classes, tokens]`; `ends` and `lengths` are those of the sequences.

        A token writes the entry that it completes, if it is still kept when the step is done.
        """
        oldest = self._oldest(ends)
        if positions.size != ends.size:
            oldest = np.repeat(oldest, lengths, axis=1)
        writes = (positions >= oldest) & (positions & self._last == self._last)
        out.fill(-1)
        np.remainder(positions >> self._to_entry, self._span, out=out, where=writes)

    def _oldest(self, ends: IntArray) -> IntArray:
        """`ClassLayout.first_token` of every class."""
        oldest: IntArray = np.maximum((ends & self._to_group) - self._before, 0)
        return oldest


def _log2(value: int) -> int:
    assert value & (value - 1) == 0, f"{value} is not a power of two"
    return value.bit_length() - 1


def _column(values: list[int]) -> IntArray:
    return np.array(values, np.int32)[:, None]
