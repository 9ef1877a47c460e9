"""The free list of one page size. Every page id is either free or held by exactly one owner."""

from __future__ import annotations

import numpy as np

from dsv4_trt.errors import CapacityError
from dsv4_trt.kv_layout import Bucket
from dsv4_trt.runtime.batch import IntArray


class PagePool:
    """Page ids 0..num_pages-1 of one bucket."""

    def __init__(self, bucket: Bucket, num_pages: int) -> None:
        self.bucket = bucket
        self.num_pages = num_pages
        self._free = np.arange(num_pages - 1, -1, -1, dtype=np.int32)
        self._num_free = num_pages

    @property
    def num_free(self) -> int:
        """Pages that nobody holds."""
        return self._num_free

    def take(self, count: int) -> IntArray:
        """Hand out `count` pages, most recently returned first."""
        if count > self._num_free:
            raise CapacityError(
                f"the {self.bucket} pool has {self._num_free} of {self.num_pages} pages free; "
                f"{count} are needed"
            )
        self._num_free -= count
        return self._free[self._num_free : self._num_free + count][::-1].copy()

    def give(self, pages: IntArray) -> None:
        """Take pages back."""
        count = pages.size
        assert self._num_free + count <= self.num_pages, "more pages returned than were handed out"
        self._free[self._num_free : self._num_free + count] = pages.ravel()
        self._num_free += count
