"""Pages of every running sequence of one network, step by step.

Each sequence has a row of the block tables, which stay where they are from step to step; between steps its
number of tokens says which columns of the row hold pages. A step is prepared, run and committed. Preparing
takes the pages that the step writes and puts them into the tables; committing drops the pages that left
their windows. If the engine fails in between, `rollback` returns the cache to what it was.

Invariants: free + cached + held = total in each pool; a page that is written has one holder, and belongs to
one row, class and layer; between steps a row of n tokens holds `ClassLayout.pages_for(n)` pages of each
class and layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dsv4_trt.errors import CapacityError
from dsv4_trt.kv_layout import LOGICAL_BLOCK, Bucket, CacheClass, ClassLayout
from dsv4_trt.runtime.batch import IntArray
from dsv4_trt.runtime.kv.marks import Mark
from dsv4_trt.runtime.kv.pool import PagePool
from dsv4_trt.runtime.kv.prefix_cache import PageIds, PrefixCache, Tail
from dsv4_trt.runtime.kv.tables import Cells, FullTable, Rows, WindowChange, WindowTable


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSize:
    """How large the block tables are."""

    max_seqs: int
    max_seq_len: int
    tails_per_step: int = 1  # boundaries that one chunk can leave behind


@dataclass(slots=True)
class PreparedStep:
    """A step whose pages are in the tables; nothing has been dropped yet."""

    rows: Rows
    marks: Sequence[Mark]
    full: list[tuple[FullTable, Cells]] = field(default_factory=list)
    windows: list[tuple[WindowTable, WindowChange]] = field(default_factory=list)


class PageCopy(NamedTuple):
    """Pages to copy before the next step: bytes of `sources [n]` into `targets [n]` of a bucket."""

    bucket: Bucket
    sources: IntArray
    targets: IntArray


class KvCache:
    """Block tables of one network's classes, over pools that networks share.

    `tables` are `[layers, max_seqs, columns]` by class and change in place; `num_tokens` is
    `[max_seqs]`.
    """

    def __init__(
        self,
        classes: Sequence[ClassLayout],
        pools: Mapping[Bucket, PagePool],
        prefix: PrefixCache,
        size: TableSize,
    ) -> None:
        self.classes = tuple(classes)
        self.pools = pools
        self.prefix = prefix
        self.size = size
        self.num_tokens = np.zeros(size.max_seqs, np.int32)
        self._full: list[FullTable] = []
        self._windows: list[WindowTable] = []
        for kv in classes:
            width = kv.table_width(size.max_seq_len, size.tails_per_step)
            pool = pools[kv.bucket]
            if kv.window is None:
                self._full.append(FullTable(kv, pool, size.max_seqs, width))
            else:
                self._windows.append(WindowTable(kv, pool, size.max_seqs, width))
        self._tables: tuple[FullTable | WindowTable, ...] = (*self._full, *self._windows)
        self.tables = {table.kv.cache_class: table.table for table in self._tables}
        self._free_rows = list(range(size.max_seqs - 1, -1, -1))
        self._is_open = np.zeros(size.max_seqs, np.bool_)

    @property
    def num_free_rows(self) -> int:
        """Sequences that can be opened."""
        return len(self._free_rows)

    def open(self) -> int:
        """The row of a new sequence without tokens; nothing of an earlier one is seen through it."""
        if not self._free_rows:
            raise CapacityError(
                f"all {self.size.max_seqs} sequences of the block tables are in use; end one first, "
                "or build with a larger --max_batch_size"
            )
        row = self._free_rows.pop()
        self._is_open[row] = True
        return row

    def is_open(self, row: int) -> bool:
        """Whether a row belongs to a sequence."""
        return bool(self._is_open[row])

    def close(self, row: int) -> None:
        """Drop everything a sequence holds."""
        assert self._is_open[row], f"row {row} is closed twice"
        for table in self._tables:
            table.close(row, int(self.num_tokens[row]))
        self.num_tokens[row] = 0
        self._is_open[row] = False
        self._free_rows.append(row)

    def need(self, rows: IntArray, ends: IntArray, marks: Sequence[Mark] = ()) -> dict[Bucket, int]:
        """Pages that a step takes which brings `rows` to `ends` tokens."""
        step = Rows(rows, self.num_tokens[rows], ends)
        need = dict.fromkeys(Bucket, 0)
        for table in self._tables:
            need[table.kv.bucket] += table.count(step, marks)
        return need

    def has_room(self, need: Mapping[Bucket, int]) -> bool:
        """Whether the pools have that many pages once the prefix cache forgets all it can."""
        return all(self.pools[bucket].num_available >= count for bucket, count in need.items())

    def prepare(self, rows: IntArray, ends: IntArray, marks: Sequence[Mark] = ()) -> PreparedStep:
        """Take the pages of a step, all or none; raises `CapacityError` before taking any.

        Each row is open, comes once, and gets at least one token.
        """
        self._make_room(self.need(rows, ends, marks))
        step = PreparedStep(Rows(rows, self.num_tokens[rows], ends), marks)
        step.full = [(table, table.take(step.rows, marks)) for table in self._full]
        step.windows = [(table, table.take(step.rows, marks)) for table in self._windows]
        return step

    def commit(self, step: PreparedStep) -> None:
        """The step has run: keep what later hits need, drop what left the windows."""
        for number, mark in enumerate(step.marks):
            mark.tail = self._keep(number, mark, step)
        for table, change in step.windows:
            table.commit(step.rows, change)
        self.num_tokens[step.rows.rows] = step.rows.ends

    def rollback(self, step: PreparedStep) -> None:
        """The step did not run: drop what it took and put the tables back."""
        for full, cells in step.full:
            full.rollback(cells)
        for window, change in step.windows:
            window.rollback(change)

    def fill_slots(
        self,
        step: PreparedStep,
        lengths: IntArray,
        positions: IntArray,
        slots: Mapping[CacheClass, IntArray],
    ) -> None:
        """Write each class's slot mapping `[num_tokens]`; tokens come sequence by sequence."""
        for table in self._tables:
            table.slots(step.rows, lengths, positions, slots[table.kv.cache_class])
        for mark in step.marks:
            first_row = int(lengths[: mark.index].sum())
            for window in self._windows:
                window.mark_slots(slots[window.kv.cache_class], step.rows, first_row, mark)

    def adopt(self, row: int, tail: Tail) -> None:
        """An open row without tokens begins where `tail` ends; it holds the pages from here on."""
        assert not self.num_tokens[row], f"row {row} has {self.num_tokens[row]} tokens already"
        tokens, path = tail.num_tokens, self.prefix.path(tail)
        for full in self._full:
            pages = np.stack([block.pages[full.kv.cache_class] for block in path], axis=1)
            full.pool.share(pages)
            full.place(row, tokens, pages)
        for window in self._windows:
            pages = tail.pages[window.kv.cache_class]
            window.pool.share(pages)
            window.place(row, tokens, pages)
        self.num_tokens[row] = tokens
        tail.is_shared = True
        self.prefix.touch(tail)

    def fork(self, row: int) -> tuple[int, list[PageCopy]]:
        """A new row with the same tokens, and the pages to copy before either goes on.

        Complete pages are shared; the one of each class and layer that the next tokens go to is copied.
        Raises `CapacityError`, and changes nothing, where there is no room.
        """
        tokens = int(self.num_tokens[row])
        partial = [
            t for t in self._tables if t.kv.pages_for(tokens) and tokens % t.kv.tokens_per_page
        ]
        need = dict.fromkeys(Bucket, 0)
        for table in partial:
            need[table.kv.bucket] += len(table.kv.layers)
        self._make_room(need)
        new = self.open()
        copies = []
        for table in self._tables:
            pages = table.pages(row, tokens).copy()
            if table in partial:
                table.pool.share(pages[:, :-1])
                fresh = table.pool.take(pages.shape[0])
                copies.append(PageCopy(table.kv.bucket, pages[:, -1].copy(), fresh))
                pages[:, -1] = fresh
            else:
                table.pool.share(pages)
            table.place(new, tokens, pages)
        self.num_tokens[new] = tokens
        return new, copies

    def _make_room(self, need: Mapping[Bucket, int]) -> None:
        for bucket, count in need.items():
            pool = self.pools[bucket]
            if count > pool.num_available:
                raise CapacityError(
                    f"this step needs {count} pages of the {bucket} pool, which has "
                    f"{pool.num_available} of {pool.num_pages} free or cached; run fewer or shorter "
                    "sequences, or plan larger pools"
                )
        self.prefix.make_room(need)

    def _keep(self, number: int, mark: Mark, step: PreparedStep) -> Tail:
        row, blocks = int(step.rows.rows[mark.index]), mark.boundary // LOGICAL_BLOCK

        def pages_of(index: int) -> PageIds:
            return {table.kv.cache_class: table.block(row, index) for table in self._full}

        tail = {
            table.kv.cache_class: table.tail(row, number, mark, change)
            for table, change in step.windows
        }
        return self.prefix.add(mark.hashes[:blocks], pages_of, tail)
