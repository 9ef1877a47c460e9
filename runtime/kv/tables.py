"""The block table of one cache class: which pages each sequence holds, and what a step changes.

`take` puts the pages that a step writes into the table, `commit` drops those that leave the window,
`rollback` takes everything back. `kv_layout` says which column is which page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dsv4_trt.kv_layout import ClassLayout
from dsv4_trt.runtime.batch import IntArray
from dsv4_trt.runtime.kv.marks import Mark
from dsv4_trt.runtime.kv.pool import PagePool


class Rows(NamedTuple):
    """The sequences of one step."""

    rows: IntArray  # [num_seqs] of the block tables; each once
    starts: IntArray  # [num_seqs] tokens held before the step
    ends: IntArray  # [num_seqs] tokens held after it


class Cells(NamedTuple):
    """Places in a block table, the same in every layer, and the pages there."""

    rows: IntArray  # [n]
    columns: IntArray  # [n]
    pages: IntArray  # [layers, n]


class FullTable:
    """A class that keeps all tokens: logical page p is in column p."""

    def __init__(self, kv: ClassLayout, pool: PagePool, max_seqs: int, width: int) -> None:
        self.kv = kv
        self.pool = pool
        self.table = np.full((len(kv.layers), max_seqs, width), -1, np.int32)

    def count(self, step: Rows, marks: Sequence[Mark]) -> int:
        """Pages that `take` takes."""
        kv = self.kv
        new = int((kv.end_page(step.ends) - kv.end_page(step.starts)).sum())
        return new * len(kv.layers)

    def take(self, step: Rows, marks: Sequence[Mark]) -> Cells:
        """Take the pages that the step adds; returns where they are."""
        first = self.kv.end_page(step.starts)
        which, logical = _spread(first, self.kv.end_page(step.ends) - first)
        cells = Cells(step.rows[which], logical, _fresh(self.pool, self.kv, logical.size))
        self.table[:, cells.rows, cells.columns] = cells.pages
        return cells

    def commit(self, step: Rows, change: Cells) -> None:
        """All pages stay."""

    def rollback(self, change: Cells) -> None:
        """Drop the pages that the step took."""
        self.table[:, change.rows, change.columns] = -1
        self.pool.drop(change.pages)

    def pages(self, row: int, tokens: int) -> IntArray:
        """Pages `[layers, n]` of a sequence of `tokens`."""
        return self.table[:, row, : self.kv.end_page(tokens)]

    def block(self, row: int, index: int) -> IntArray:
        """Pages `[layers]` of one logical block."""
        return self.table[:, row, index].copy()

    def place(self, row: int, tokens: int, pages: IntArray) -> None:
        """A row that holds nothing gets the pages of `tokens` tokens; holders are not counted."""
        self.table[:, row, : self.kv.end_page(tokens)] = pages

    def close(self, row: int, tokens: int) -> None:
        """Drop a sequence's pages."""
        pages = self.pages(row, tokens)
        self.pool.drop(pages)
        pages[:] = -1

    def slots(self, step: Rows, lengths: IntArray, positions: IntArray, out: IntArray) -> None:
        """Write the slot mapping `[num_tokens]` of the step: each entry that a token completes."""
        out.fill(-1)
        complete = (positions + 1) % self.kv.ratio == 0
        np.floor_divide(positions, self.kv.ratio, out=out, where=complete)


class Passed(NamedTuple):
    """Pages of a marked boundary that have left the window at the end of the step."""

    cells: Cells  # behind the rings
    num_old: int  # so many were held before the step and leave with the window; the rest is fresh


@dataclass(slots=True)
class WindowChange:
    """What a step changes in a window class."""

    added: Cells  # in the ring after the step
    left: IntArray  # [num_seqs] first logical page that leaves
    num_left: IntArray  # [num_seqs] pages that leave
    passed: dict[int, Passed] = field(default_factory=dict)  # by the number of the mark


class WindowTable:
    """A class that keeps a window: a ring before the step, a ring after it, and passed pages behind."""

    def __init__(self, kv: ClassLayout, pool: PagePool, max_seqs: int, width: int) -> None:
        self.kv = kv
        self.pool = pool
        self.ring = kv.window_pages
        self.table = np.full((len(kv.layers), max_seqs, width), -1, np.int32)

    def count(self, step: Rows, marks: Sequence[Mark]) -> int:
        """Pages that `take` takes."""
        kv = self.kv
        held = kv.end_page(step.starts)
        first = np.maximum(held, kv.first_page(step.ends))
        new = int((kv.end_page(step.ends) - first).sum())
        for mark in marks:
            passed = mark.passed(kv, int(step.ends[mark.index]))
            new += sum(page >= held[mark.index] for page in passed)
        return new * len(kv.layers)

    def take(self, step: Rows, marks: Sequence[Mark]) -> WindowChange:
        """Take the pages that the step writes; returns where they are and what leaves."""
        kv = self.kv
        held, oldest = kv.end_page(step.starts), kv.first_page(step.ends)
        first = np.maximum(held, oldest)
        which, logical = _spread(first, kv.end_page(step.ends) - first)
        columns = self.ring + logical % self.ring
        added = Cells(step.rows[which], columns, _fresh(self.pool, kv, logical.size))
        self.table[:, added.rows, added.columns] = added.pages
        left = kv.first_page(step.starts)
        change = WindowChange(added, left, np.minimum(oldest, held) - left)
        for number, mark in enumerate(marks):
            passed = mark.passed(kv, int(step.ends[mark.index]))
            if passed:
                change.passed[number] = self._take_passed(step, mark, passed)
        return change

    def commit(self, step: Rows, change: WindowChange) -> None:
        """Drop what left the windows; the ring before the next step is the ring after this one."""
        which, logical = _spread(change.left, change.num_left)
        if which.size:
            rows, columns = step.rows[which], logical % self.ring
            self.pool.drop(self.table[:, rows, columns])
            self.table[:, rows, columns] = -1
            self.table[:, rows, self.ring + columns] = -1
        rows, columns, pages = change.added
        if rows.size:
            self.table[:, rows, columns] = pages
            self.table[:, rows, columns - self.ring] = pages
        self._drop_passed(change)

    def rollback(self, change: WindowChange) -> None:
        """Drop the pages that the step took; the ring after the step is the one before it."""
        rows, columns, pages = change.added
        self.table[:, rows, columns] = self.table[:, rows, columns - self.ring]
        self.pool.drop(pages)
        self._drop_passed(change)

    def pages(self, row: int, tokens: int) -> IntArray:
        """Pages `[layers, n]` of a sequence of `tokens`, the oldest first."""
        return self.table[:, row, self._columns(tokens)]

    def tail(self, row: int, number: int, mark: Mark, change: WindowChange) -> IntArray:
        """Pages `[layers, n]` of a marked boundary once the step has run, before it is committed."""
        kv, passed = self.kv, change.passed.get(number)
        gone = 0 if passed is None else passed.cells.columns.size
        first, end = kv.first_page(mark.boundary) + gone, kv.end_page(mark.boundary)
        inside = self.table[:, row, self.ring + np.arange(first, end) % self.ring]
        return inside if passed is None else np.concatenate([passed.cells.pages, inside], axis=1)

    def place(self, row: int, tokens: int, pages: IntArray) -> None:
        """A row that holds nothing gets the pages of `tokens` tokens; holders are not counted."""
        columns = self._columns(tokens)
        self.table[:, row, columns] = pages
        self.table[:, row, self.ring + columns] = pages

    def close(self, row: int, tokens: int) -> None:
        """Drop a sequence's pages."""
        self.pool.drop(self.pages(row, tokens))
        self.table[:, row] = -1

    def slots(self, step: Rows, lengths: IntArray, positions: IntArray, out: IntArray) -> None:
        """Write the slot mapping `[num_tokens]` of the step: each row that stays inside the window."""
        out.fill(-1)
        kept = positions >= np.repeat(self.kv.first_token(step.ends), lengths)
        np.remainder(positions, self.ring * self.kv.tokens_per_page, out=out, where=kept)

    def mark_slots(self, slots: IntArray, step: Rows, first_row: int, mark: Mark) -> None:
        """Give the tokens of a marked boundary's window their slots; the chunk is at `first_row`."""
        kv, per_page = self.kv, self.kv.tokens_per_page
        start, end = int(step.starts[mark.index]), int(step.ends[mark.index])
        tokens = np.arange(max(start, kv.first_token(mark.boundary)), mark.boundary, dtype=np.int32)
        column = tokens // per_page % self.ring
        behind = mark.first_column(kv) - self.ring - kv.first_page(mark.boundary)
        passed = tokens // per_page < kv.first_page(end)
        column = np.where(passed, behind + tokens // per_page, column)
        slots[first_row + tokens - start] = column * per_page + tokens % per_page

    def _take_passed(self, step: Rows, mark: Mark, passed: range) -> Passed:
        row, held = step.rows[mark.index], self.kv.end_page(int(step.starts[mark.index]))
        logical = np.array(passed, np.int32)
        old = self.table[:, row, logical[logical < held] % self.ring]
        num_old = old.shape[1]
        pages = np.concatenate([old, _fresh(self.pool, self.kv, logical.size - num_old)], axis=1)
        columns = mark.first_column(self.kv) + np.arange(logical.size, dtype=np.int32)
        self.table[:, row, columns] = pages
        return Passed(Cells(np.full(logical.size, row, np.int32), columns, pages), num_old)

    def _drop_passed(self, change: WindowChange) -> None:
        for (rows, columns, pages), num_old in change.passed.values():
            self.table[:, rows, columns] = -1
            self.pool.drop(pages[:, num_old:])

    def _columns(self, tokens: int) -> IntArray:
        logical = np.arange(self.kv.first_page(tokens), self.kv.end_page(tokens), dtype=np.int32)
        return logical % self.ring


def _spread(first: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """For each sequence its `counts` logical pages from `first` on: which sequence, which page."""
    which = np.repeat(np.arange(counts.size, dtype=np.int32), counts)
    before = np.cumsum(counts, dtype=np.int32) - counts
    within = np.arange(which.size, dtype=np.int32) - before[which]
    return which, first[which] + within


def _fresh(pool: PagePool, kv: ClassLayout, columns: int) -> IntArray:
    layers = len(kv.layers)
    return pool.take(layers * columns).reshape(layers, columns)
