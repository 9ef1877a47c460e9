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


class PageRanges(NamedTuple):
    """Logical pages by class and sequence: `num` of them from `first` on."""

    first: IntArray
    num: IntArray

    def flat(self) -> FlatPages:
        """One item for each page, class by class."""
        classes, seqs = np.nonzero(self.num)
        logical, num = self.first[classes, seqs], self.num[classes, seqs]
        if num.max(initial=0) > 1:
            before = np.repeat(np.cumsum(num) - num, num)
            classes, seqs = np.repeat(classes, num), np.repeat(seqs, num)
            logical = np.repeat(logical, num) + np.arange(before.size) - before
        return FlatPages(classes, seqs, logical)


class FlatPages(NamedTuple):
    """Pages of several classes, in the order of the classes; arrays `[n]`."""

    classes: IndexArray
    seqs: IndexArray  # which sequence of the step
    logical: IntArray


class Moves(NamedTuple):
    """What happens to the pages of sequences that get more tokens."""

    new: PageRanges  # pages to take
    left: PageRanges  # pages that leave the windows


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
        self._ring = np.array(rings)
        self._span = _column([ring * n for ring, n in zip(rings, per_page, strict=True)])

    def moves(self, starts: IntArray, ends: IntArray) -> Moves:
        """Pages that come and go as sequences go from `starts` to `ends` tokens."""
        held = (starts + self._round_up) >> self._to_page
        stop = (ends + self._round_up) >> self._to_page
        oldest = self._oldest(ends) >> self._to_page
        first = self._oldest(starts) >> self._to_page
        new, left = np.maximum(held, oldest), np.minimum(held, oldest)
        return Moves(PageRanges(new, stop - new), PageRanges(first, left - first))

    def columns(self, pages: FlatPages) -> IndexArray:
        """Column of each page in its class's ring (in the whole table where there is none)."""
        columns: IndexArray = pages.logical % self._ring[pages.classes]
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
