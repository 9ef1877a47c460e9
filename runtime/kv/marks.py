"""A boundary that a step passes and whose window pages stay, so that later sequences can begin there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsv4_trt.kv_layout import ClassLayout
from dsv4_trt.runtime.batch import IntArray
from dsv4_trt.runtime.kv.prefix_cache import Tail


@dataclass(slots=True, eq=False)
class Mark:
    """One boundary of one sequence in one step."""

    index: int  # which sequence of the step
    boundary: int  # tokens; a multiple of a logical block, in (start, end] of that sequence's chunk
    nth: int  # how many boundaries of the same sequence come before it in this step
    hashes: Sequence[bytes]  # of the sequence's blocks, at least those up to the boundary
    tail: Tail | None = None  # where hits begin; set when the step is committed

    def passed(self, kv: ClassLayout, end: int) -> range:
        """Logical pages of the boundary's window that have left the window at `end`."""
        first = kv.first_page(self.boundary)
        return range(first, max(first, min(kv.first_page(end), kv.end_page(self.boundary))))

    def first_column(self, kv: ClassLayout) -> int:
        """Column behind the rings where the boundary's first page stands."""
        return 2 * kv.window_pages + self.nth * kv.tail_pages

    def tokens(self, kv: ClassLayout, start: int) -> IntArray:
        """Tokens of the boundary's window that a chunk from `start` on computes."""
        return np.arange(max(start, kv.first_token(self.boundary)), self.boundary, dtype=np.int32)

    def slots(self, kv: ClassLayout, tokens: IntArray, end: int) -> IntArray:
        """Slots of those tokens in a step that reaches token `end`."""
        logical = tokens // kv.tokens_per_page
        behind = self.first_column(kv) - kv.window_pages + logical - kv.first_page(self.boundary)
        inside = logical % kv.window_pages
        column = np.where(logical < kv.first_page(end), behind, inside)
        return column * kv.entries_per_page + tokens % kv.tokens_per_page
