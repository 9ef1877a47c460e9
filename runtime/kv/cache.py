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
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dsv4_trt.errors import CapacityError
from dsv4_trt.kv_layout import LOGICAL_BLOCK, Bucket, ClassLayout
from dsv4_trt.runtime.batch import IntArray
from dsv4_trt.runtime.kv.geometry import Geometry
from dsv4_trt.runtime.kv.marks import Mark
from dsv4_trt.runtime.kv.pool import IndexArray, PageArray, PagePool
from dsv4_trt.runtime.kv.prefix_cache import PageIds, PrefixCache, Tail
from dsv4_trt.runtime.kv.step import Passed, PreparedStep
from dsv4_trt.runtime.kv.tables import ClassTable, Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSize:
    """How large the block tables are."""

    max_seqs: int
    max_seq_len: int
    tails_per_step: int = 1  # boundaries that one chunk can leave behind


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
        order = list(Bucket)
        self.classes = tuple(sorted(classes, key=lambda kv: order.index(kv.bucket)))
        self.pools = pools
        self.prefix = prefix
        self.size = size
        self.num_tokens = np.zeros(size.max_seqs, np.int32)
        self._geometry = Geometry(self.classes)
        widths = [kv.table_width(size.max_seq_len, size.tails_per_step) for kv in self.classes]
        self._tables = Tables(self.classes, pools, size.max_seqs, widths)
        self._windows = [table for table in self._tables.by_class if table.kv.tail_pages]
        self._full = [table for table in self._tables.by_class if not table.ring]
        self.tables = {table.kv.cache_class: table.table for table in self._tables.by_class}
        self._free_rows = list(range(size.max_seqs - 1, -1, -1))
        self._is_open = np.zeros(size.max_seqs, np.bool_)

    @property
    def table_ids(self) -> IntArray:
        """The memory that all `tables` are views of."""
        return self._tables.ids

    def take_changes(self) -> IndexArray:
        """Places of `table_ids` that may have changed since the last call."""
        return self._tables.changes.take()

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
        tokens = int(self.num_tokens[row])
        for table in self._tables.by_class:
            table.pool.drop(table.held(row, tokens))
            table.clear(row, tokens)
        self.num_tokens[row] = 0
        self._is_open[row] = False
        self._free_rows.append(row)

    def need(self, rows: IntArray, ends: IntArray, marks: Sequence[Mark] = ()) -> dict[Bucket, int]:
        """Pages that a step takes which brings `rows` to `ends` tokens."""
        starts = self.num_tokens[rows]
        need = dict.fromkeys(Bucket, 0)
        counts = self._geometry.moves(starts, ends).num_new.sum(axis=1).tolist()
        for kv, count in zip(self.classes, counts, strict=True):
            need[kv.bucket] += count * len(kv.layers)
        self._add_passed(need, starts, ends, marks)
        return need

    def has_room(self, need: Mapping[Bucket, int]) -> bool:
        """Whether the pools have that many pages once the prefix cache forgets all it can."""
        return all(self.pools[bucket].num_available >= count for bucket, count in need.items())

    def prepare(self, rows: IntArray, ends: IntArray, marks: Sequence[Mark] = ()) -> PreparedStep:
        """Take the pages of a step, all or none; raises `CapacityError` before taking any.

        Each row is open, comes once, and gets at least one token.
        """
        starts = self.num_tokens[rows]
        flat = self._geometry.moves(starts, ends).flat()
        columns = self._geometry.columns(flat)
        came, left = self._tables.places(flat, rows[flat.seqs], columns)
        need = dict(came.counts)
        self._add_passed(need, starts, ends, marks)
        self._check_room(need)
        self.prefix.make_room(need)
        pages = np.concatenate([self.pools[b].take(count) for b, count in came.counts.items()])
        self._tables.write(came.second, pages)
        step = PreparedStep(rows, starts, ends, marks, came, pages, left)
        for mark in marks:
            if mark.boundary < ends[mark.index]:
                for table in self._windows:
                    self._pass(step, mark, table)
        return step

    def commit(self, step: PreparedStep) -> None:
        """The step has run: keep what later hits need, drop what left the windows."""
        for mark in step.marks:
            mark.tail = self._keep(mark, step)
        ids, came, left = self._tables.ids, step.came, step.left
        self._drop(ids[left.first], left.counts)
        write = self._tables.write
        write(left.first, -1)
        write(left.second, -1)
        write(came.first, step.pages)
        write(came.second, step.pages)
        self._clear_passed(step)
        self.num_tokens[step.rows] = step.ends

    def rollback(self, step: PreparedStep) -> None:
        """The step did not run: drop what it took and put the tables back."""
        ids, came = self._tables.ids, step.came
        # the ring before the step still has what was there; a class without rings had nothing
        before = np.where(came.second != came.first, ids[came.first], -1)
        self._tables.write(came.second, before)
        self._drop(step.pages, came.counts)
        self._clear_passed(step)

    def fill_slots(
        self, step: PreparedStep, lengths: IntArray, positions: IntArray, slots: IntArray
    ) -> None:
        """Write the slot mappings `[classes, num_tokens]`; tokens come sequence by sequence."""
        self._geometry.slots(step.ends, lengths, positions, slots)
        for mark in step.marks:
            end = int(step.ends[mark.index])
            if mark.boundary < end:
                first_row = int(lengths[: mark.index].sum()) - int(step.starts[mark.index])
                for kv, row in zip(self.classes, slots, strict=True):
                    if kv.window is not None:
                        tokens = mark.tokens(kv, int(step.starts[mark.index]))
                        row[first_row + tokens] = mark.slots(kv, tokens, end)

    def adopt(self, row: int, tail: Tail) -> None:
        """An open row without tokens begins where `tail` ends; it holds the pages from here on."""
        assert not self.num_tokens[row], f"row {row} has {self.num_tokens[row]} tokens already"
        path = self.prefix.path(tail)
        for table in (*self._windows, *self._full):  # others hold nothing at a boundary
            name = table.kv.cache_class
            pages = tail.pages[name] if table.ring else np.stack([b.pages[name] for b in path])
            table.pool.share(pages)
            table.begin(row, tail.num_tokens, pages)
        self.num_tokens[row] = tail.num_tokens

    def fork(self, row: int) -> tuple[int, list[PageCopy]]:
        """A new row with the same tokens, and the pages to copy before either goes on.

        Complete pages are shared; the one of each class and layer that the next tokens go to is copied.
        Raises `CapacityError`, and changes nothing, where there is no room.
        """
        tokens = int(self.num_tokens[row])
        partial = [
            kv for kv in self.classes if kv.pages_for(tokens) and tokens % kv.tokens_per_page
        ]
        need = dict.fromkeys(Bucket, 0)
        for kv in partial:
            need[kv.bucket] += len(kv.layers)
        self._check_room(need)
        new = self.open()
        self.prefix.make_room(need)
        copies = []
        for table in self._tables.by_class:
            pages = table.held(row, tokens)
            if table.kv in partial:
                table.pool.share(pages[:-1])
                fresh = table.pool.take(pages.shape[1])
                copies.append(PageCopy(table.kv.bucket, pages[-1].copy(), fresh.astype(np.int32)))
                pages[-1] = fresh
            else:
                table.pool.share(pages)
            table.begin(new, tokens, pages)
        self.num_tokens[new] = tokens
        return new, copies

    def _add_passed(
        self, need: dict[Bucket, int], starts: IntArray, ends: IntArray, marks: Sequence[Mark]
    ) -> None:
        """Add the pages that marked boundaries take behind the rings."""
        for mark in marks:
            end = int(ends[mark.index])
            for table in self._windows if mark.boundary < end else ():
                kv, passed = table.kv, mark.passed(table.kv, end)
                held = kv.end_page(int(starts[mark.index]))
                need[kv.bucket] += sum(page >= held for page in passed) * len(kv.layers)

    def _check_room(self, need: Mapping[Bucket, int]) -> None:
        for bucket, count in need.items():
            pool = self.pools[bucket]
            if count > pool.num_available:
                raise CapacityError(
                    f"this step needs {count} pages of the {bucket} pool, which has "
                    f"{pool.num_available} of {pool.num_pages} free or cached; run fewer or shorter "
                    "sequences, or plan larger pools"
                )

    def _drop(self, pages: PageArray, counts: Mapping[Bucket, int]) -> None:
        end = 0
        for bucket, count in counts.items():
            self.pools[bucket].drop(pages[end : end + count])
            end += count

    def _pass(self, step: PreparedStep, mark: Mark, table: ClassTable) -> None:
        """Put the pages of a marked boundary that the window passes behind the rings."""
        row, start, end = (int(a[mark.index]) for a in (step.rows, step.starts, step.ends))
        kv, passed = table.kv, mark.passed(table.kv, end)
        if not passed:
            return
        held = min(kv.end_page(start), passed.stop)
        old = np.arange(passed.start, max(held, passed.start))
        num_fresh = len(passed) - old.size
        fresh = table.pool.take(len(kv.layers) * num_fresh).reshape(num_fresh, len(kv.layers))
        columns = mark.first_column(kv) + np.arange(len(passed))
        kept = table.columns[row, old % table.ring]
        table.put(row, columns, np.concatenate([kept, fresh]))
        step.passed.append(Passed(table, row, columns, fresh))

    def _clear_passed(self, step: PreparedStep) -> None:
        for table, row, columns, fresh in step.passed:
            table.put(row, columns, -1)
            table.pool.drop(fresh)

    def _keep(self, mark: Mark, step: PreparedStep) -> Tail:
        row, end = int(step.rows[mark.index]), int(step.ends[mark.index])

        def pages_of(block: int) -> PageIds:
            return {t.kv.cache_class: t.columns[row, block].copy() for t in self._full}

        tail = {t.kv.cache_class: t.tail(row, mark, end) for t in self._windows}
        return self.prefix.add(mark.hashes[: mark.boundary // LOGICAL_BLOCK], pages_of, tail)
