"""Page ids of one size: who holds them, and which are worth keeping when nobody does.

Every page is in one of three states, so that free + cached + held = total:

    free     on the free list; its bytes mean nothing
    held     at least one sequence reads it or writes it: its count of holders is above 0
    cached   no holder, but the prefix cache keeps it, ready to be held again or forgotten
"""

from __future__ import annotations

import numpy as np

from dsv4_trt.errors import CapacityError
from dsv4_trt.kv_layout import Bucket
from dsv4_trt.runtime.batch import IntArray


class PagePool:
    """Page ids 0..num_pages-1 of one bucket. Arguments are int32 arrays of ids, of any shape."""

    def __init__(self, bucket: Bucket, num_pages: int) -> None:
        self.bucket = bucket
        self.num_pages = num_pages
        self.num_cached = 0
        self._free = np.arange(num_pages - 1, -1, -1, dtype=np.int32)
        self._num_free = num_pages
        self._holders = np.zeros(num_pages, np.int32)
        self._kept = np.zeros(num_pages, np.bool_)

    @property
    def num_free(self) -> int:
        """Pages that can be taken without forgetting anything."""
        return self._num_free

    @property
    def num_held(self) -> int:
        """Pages that sequences hold."""
        return self.num_pages - self._num_free - self.num_cached

    @property
    def num_available(self) -> int:
        """Pages that can be taken once the prefix cache forgets all it can."""
        return self._num_free + self.num_cached

    def take(self, count: int) -> IntArray:
        """Hand out `count` free pages, most recently freed first; each then has one holder."""
        if count > self._num_free:
            raise CapacityError(
                f"the {self.bucket} pool has {self._num_free} of {self.num_pages} pages free; "
                f"{count} are needed"
            )
        self._num_free -= count
        pages = self._free[self._num_free : self._num_free + count][::-1].copy()
        self._holders[pages] = 1
        return pages

    def share(self, pages: IntArray) -> None:
        """One more holder for each of these held or cached pages; no page comes twice."""
        holders = self._holders[pages]
        self.num_cached -= int(np.count_nonzero(holders == 0))
        self._holders[pages] = holders + 1

    def drop(self, pages: IntArray) -> None:
        """One holder less for each page, as often as it comes; without any it is cached or free."""
        ids = pages.ravel()
        if not ids.size:
            return
        holders = self._holders[ids]
        assert holders.min() > 0, f"the {self.bucket} pages {ids[holders <= 0]} have no holder"
        if holders.max() == 1:  # then none comes twice
            self._holders[ids] = 0
        else:
            np.subtract.at(self._holders, ids, 1)
            ids = np.unique(ids)
            ids = ids[self._holders[ids] == 0]
        kept = self._kept[ids]
        self.num_cached += int(np.count_nonzero(kept))
        self._to_front(ids[~kept])

    def keep(self, pages: IntArray) -> None:
        """The prefix cache wants these held pages to stay when their holders leave."""
        assert not self._kept[pages].any(), (
            f"some of the {self.bucket} pages {pages} are kept twice"
        )
        assert self._holders[pages].all(), f"some of the {self.bucket} pages {pages} are not held"
        self._kept[pages] = True

    def forget(self, pages: IntArray) -> None:
        """The prefix cache lets go of pages it kept; those without a holder are free."""
        ids = pages.ravel()
        assert self._kept[ids].all(), f"some of the {self.bucket} pages {ids} are not kept"
        self._kept[ids] = False
        idle = ids[self._holders[ids] == 0]
        self.num_cached -= idle.size
        self._to_front(idle)

    def _to_front(self, pages: IntArray) -> None:
        end = self._num_free + pages.size
        assert end <= self.num_pages, f"more {self.bucket} pages freed than there are"
        self._free[self._num_free : end] = pages
        self._num_free = end
