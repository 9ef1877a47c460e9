"""The block tables of several cache classes. `kv_layout` says which column is which page.

A step changes few columns, in all layers of a class, of many rows. To do that for all classes at once,
all tables lie in one array of ids, and the layers of a column lie next to each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dsv4_trt.kv_layout import Bucket, ClassLayout
from dsv4_trt.runtime.batch import IntArray
from dsv4_trt.runtime.kv.geometry import FlatPages
from dsv4_trt.runtime.kv.marks import Mark
from dsv4_trt.runtime.kv.pool import IndexArray, PageArray, PagePool

_ALIGNMENT = 64  # ids between the starts of two classes: TensorRT takes addresses of 256 bytes


class Changes:
    """Places of ids that were written since they were last taken, for engines that keep a copy."""

    def __init__(self) -> None:
        self._places: list[IndexArray] = []

    def add(self, places: IndexArray) -> None:
        """These places may hold another id from now on."""
        if places.size:
            self._places.append(places)

    def take(self) -> IndexArray:
        """All places since the last call; one may be listed twice."""
        found = self._places or [np.zeros(0, np.intp)]
        self._places = []
        return found[0] if len(found) == 1 else np.concatenate(found)


class ClassTable:
    """One class's table, over the pool of its bucket; `table` is the view that engines read.

    Its ids begin at `start` of all tables' ids.
    """

    def __init__(
        self, kv: ClassLayout, pool: PagePool, columns: IntArray, start: int, changes: Changes
    ) -> None:
        self.kv = kv
        self.pool = pool
        self._start = start
        self._changes = changes
        self.ring = 0 if kv.window is None else kv.window_pages
        self.columns = columns  # [max_seqs, columns, layers]
        self.table = columns.transpose(2, 0, 1)  # [layers, max_seqs, columns]

    def held(self, row: int, tokens: int) -> IntArray:
        """Pages `[n, layers]` of a sequence of `tokens`, the oldest first."""
        pages: IntArray = self.columns[row, self._held_columns(tokens)]
        return pages

    def begin(self, row: int, tokens: int, pages: IntArray) -> None:
        """A row that holds nothing gets the pages `[n, layers]` of `tokens` tokens."""
        columns = self._held_columns(tokens)
        for at in (columns, columns + self.ring) if self.ring else (columns,):
            self.put(row, at, pages)

    def clear(self, row: int, tokens: int) -> None:
        """Forget the pages of a sequence of `tokens`."""
        used = self.columns.shape[1] if self.ring else self.kv.end_page(tokens)
        self.put(row, np.arange(used), -1)

    def put(self, row: int, columns: IndexArray, pages: IntArray | int) -> None:
        """Write `pages [n, layers]`, or one id everywhere, to columns of a row."""
        self.columns[row, columns] = pages
        _, width, layers = self.columns.shape
        first = self._start + (row * width + columns) * layers
        self._changes.add((first[:, None] + np.arange(layers)).ravel())

    def tail(self, row: int, mark: Mark, end: int) -> IntArray:
        """Pages `[n, layers]` of a marked boundary at the end of a step that reaches token `end`."""
        passed = mark.passed(self.kv, end)
        behind = [mark.first_column(self.kv) + i for i in range(len(passed))]
        inside = range(passed.stop, self.kv.end_page(mark.boundary))
        return self.columns[row, [*behind, *(self.ring + page % self.ring for page in inside)]]

    def _held_columns(self, tokens: int) -> IndexArray:
        logical = np.arange(self.kv.first_page(tokens), self.kv.end_page(tokens))
        return logical % self.ring if self.ring else logical


class Places(NamedTuple):
    """Places in `Tables.ids`, bucket by bucket: all layers of some columns."""

    first: IndexArray  # in the ring before the step, or in the whole table of a class without rings
    second: IndexArray  # the same column of the ring after it; equal to `first` without rings
    counts: dict[Bucket, int]


class Tables:
    """All classes' tables, and where in `ids` their columns are; classes come bucket by bucket.

    What is left between two tables is -1 and nobody's.
    """

    def __init__(
        self,
        classes: Sequence[ClassLayout],
        pools: Mapping[Bucket, PagePool],
        max_seqs: int,
        widths: Sequence[int],
    ) -> None:
        layers = np.array([len(kv.layers) for kv in classes], np.intp)
        sizes = max_seqs * np.array(widths, np.intp) * layers
        rooms = -(-sizes // _ALIGNMENT) * _ALIGNMENT
        starts = np.cumsum(rooms) - rooms
        self.ids = np.full(int(rooms.sum()), -1, np.int32)
        self.changes = Changes()
        self.by_class = [
            ClassTable(
                kv,
                pools[kv.bucket],
                self.ids[start : start + size].reshape(max_seqs, width, len(kv.layers)),
                start,
                self.changes,
            )
            for kv, start, size, width in zip(
                classes, starts.tolist(), sizes.tolist(), widths, strict=True
            )
        ]
        # of pages that come and of pages that go
        self._layers = np.tile(layers, 2)
        self._starts = np.tile(starts, 2)
        self._row_ids = np.tile(np.array(widths, np.intp) * layers, 2)  # ids of one row
        rings = np.array([table.ring for table in self.by_class], np.intp)
        self._ring_ids = np.tile(rings * layers, 2)  # ids of one ring
        self._buckets = [kv.bucket for kv in classes]

    def write(self, places: IndexArray, pages: PageArray | int) -> None:
        """Write page ids to places."""
        self.ids[places] = pages
        self.changes.add(places)

    def places(
        self, pages: FlatPages, rows: IntArray, columns: IndexArray
    ) -> tuple[Places, Places]:
        """Places of pages that come, and of pages that go; rows and columns are `[n]`."""
        moves = pages.moves
        layers = self._layers[moves]
        first = self._starts[moves] + rows * self._row_ids[moves] + columns * layers
        at = np.repeat(first - (np.cumsum(layers) - layers), layers)
        at += np.arange(at.size)
        second = at + np.repeat(self._ring_ids[moves], layers)
        counts = (np.bincount(moves, minlength=self._layers.size) * self._layers).tolist()
        half = len(self._buckets)
        cut = sum(counts[:half])
        return (
            Places(at[:cut], second[:cut], self._by_bucket(counts[:half])),
            Places(at[cut:], second[cut:], self._by_bucket(counts[half:])),
        )

    def _by_bucket(self, counts: list[int]) -> dict[Bucket, int]:
        found = dict.fromkeys(Bucket, 0)
        for bucket, count in zip(self._buckets, counts, strict=True):
            found[bucket] += count
        return found
