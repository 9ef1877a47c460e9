"""The block tables of several cache classes. `kv_layout` says which column is which page.

A step changes few columns, in all layers of a class, of many rows. To do that for all classes at once,
all tables lie in one array of ids, and the layers of a column lie next to each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dsv4_trt.kv_layout import Bucket, ClassLayout
from dsv4_trt.runtime.batch import IntArray
from dsv4_trt.runtime.kv.geometry import FlatPages
from dsv4_trt.runtime.kv.marks import Mark
from dsv4_trt.runtime.kv.pool import IndexArray, PagePool


class ClassTable:
    """One class's table, over the pool of its bucket; `table` is the view that engines read."""

    def __init__(self, kv: ClassLayout, pool: PagePool, columns: IntArray) -> None:
        self.kv = kv
        self.pool = pool
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
        self.columns[row, columns] = pages
        self.columns[row, columns + self.ring] = pages

    def clear(self, row: int, tokens: int) -> None:
        """Forget the pages of a sequence of `tokens`."""
        used = self.columns.shape[1] if self.ring else self.kv.end_page(tokens)
        self.columns[row, :used] = -1

    def tail(self, row: int, mark: Mark, end: int) -> IntArray:
        """Pages `[n, layers]` of a marked boundary at the end of a step that reaches token `end`."""
        passed = mark.passed(self.kv, end)
        behind = [mark.first_column(self.kv) + i for i in range(len(passed))]
        inside = range(passed.stop, self.kv.end_page(mark.boundary))
        return self.columns[row, [*behind, *(self.ring + page % self.ring for page in inside)]]

    def _held_columns(self, tokens: int) -> IndexArray:
        logical = np.arange(self.kv.first_page(tokens), self.kv.end_page(tokens))
        return logical % self.ring if self.ring else logical


class Tables:
    """All classes' tables, and where in `ids` their columns are; classes come bucket by bucket."""

    def __init__(
        self,
        classes: Sequence[ClassLayout],
        pools: Mapping[Bucket, PagePool],
        max_seqs: int,
        widths: Sequence[int],
    ) -> None:
        layers = np.array([len(kv.layers) for kv in classes], np.intp)
        sizes = max_seqs * np.array(widths, np.intp) * layers
        starts = np.cumsum(sizes) - sizes
        self.ids = np.full(int(sizes.sum()), -1, np.int32)
        self.by_class = [
            ClassTable(
                kv,
                pools[kv.bucket],
                self.ids[start : start + size].reshape(max_seqs, width, len(kv.layers)),
            )
            for kv, start, size, width in zip(
                classes, starts.tolist(), sizes.tolist(), widths, strict=True
            )
        ]
        self._layers = layers
        self._starts = starts
        self._row_ids = np.array(widths, np.intp) * layers  # ids of one row
        self._ring_ids = layers * [table.ring for table in self.by_class]  # ids of one ring
        self._buckets = [kv.bucket for kv in classes]

    def places(
        self, pages: FlatPages, rows: IntArray, columns: IndexArray
    ) -> tuple[IndexArray, IndexArray]:
        """Places in `ids` of columns `[n]` of rows `[n]`, all layers, in the first ring.

        Also how far behind is the same place in the second ring (0 where there is none).
        """
        classes = pages.classes
        layers = self._layers[classes]
        first = self._starts[classes] + rows * self._row_ids[classes] + columns * layers
        before = np.cumsum(layers) - layers
        places = np.repeat(first - before, layers)
        places += np.arange(places.size)
        return places, np.repeat(self._ring_ids[classes], layers)

    def by_bucket(self, pages: FlatPages) -> list[tuple[Bucket, int]]:
        """How many page ids of each bucket the places of `pages` are, in their order."""
        counts = (np.bincount(pages.classes, minlength=self._layers.size) * self._layers).tolist()
        found: dict[Bucket, int] = {}
        for bucket, count in zip(self._buckets, counts, strict=True):
            found[bucket] = found.get(bucket, 0) + count
        return list(found.items())
