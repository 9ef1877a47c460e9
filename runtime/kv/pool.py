"""Page ids of one size: who holds them, and which are worth keeping when nobody does.

Every page is in one of three states, so that free + cached + held = total:

    free     on the free list; its bytes mean nothing
    held     at least one sequence reads it or writes it: its count of holders is above 0
    cached   no holder, but the prefix cache keeps it, ready to be held again or forgotten
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dsv4_trt.errors import CapacityError
from dsv4_trt.kv_layout import Bucket
from dsv4_trt.runtime.batch import IntArray

IndexArray = npt.NDArray[np.intp]
PageArray = IntArray | IndexArray


_KEEPER = 1 << 16  # holders count in ones, keepers in units above them
_HOLDERS = _KEEPER - 1


class PagePool:
    """Page ids 0..num_pages-1 of one bucket. Arguments are arrays of ids, of any shape."""

    def __init__(self, bucket: Bucket, num_pages: int) -> None:
        self.bucket = bucket
        self.num_pages = num_pages
        self.num_cached = 0
        self._free = np.arange(num_pages - 1, -1, -1, dtype=np.intp)
        self._num_free = num_pages
        self._users = np.zeros(num_pages, np.int32)  # holders + _KEEPER * keepers of each page

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

    def free_pages(self) -> IndexArray:
        """The free pages, `[num_free]`."""
        return self._free[: self._num_free].copy()

    def holders(self) -> IntArray:
        """How many sequences hold each page, `[num_pages]`."""
        return self._users & _HOLDERS

    def keepers(self) -> IntArray:
        """How many blocks and tails of the prefix cache keep each page, `[num_pages]`."""
        return self._users // _KEEPER

    def take(self, count: int) -> IndexArray:
        """Hand out `count` free pages, most recently freed first; each then has one holder."""
        if count > self._num_free:
            raise CapacityError(
                f"the {self.bucket} pool has {self._num_free} of {self.num_pages} pages free; "
                f"{count} are needed"
            )
        self._num_free -= count
        pages = self._free[self._num_free : self._num_free + count][::-1].copy()
        self._users[pages] = 1
        return pages

    def share(self, pages: PageArray) -> None:
        """One more holder for each of these held or cached pages; no page comes twice."""
        users = self._users[pages]
        assert users.all(), f"some of the {self.bucket} pages {pages} are free"
        self.num_cached -= int(np.count_nonzero(users & _HOLDERS == 0))
        self._users[pages] = users + 1

    def drop(self, pages: PageArray) -> None:
        """One holder less for each page, as often as it comes; without any it is cached or free."""
        index = pages.ravel().astype(np.intp)  # numpy converts other indices at each use
        if not index.size:
            return
        users = self._users[index]
        holders = users & _HOLDERS
        if (holders == 1).all():  # then none comes twice
            users -= 1
            self._users[index] = users
        else:
            assert holders.all(), f"some of the {self.bucket} pages {pages} have no holder"
            np.subtract.at(self._users, index, 1)
            index = np.unique(index)
            users = self._users[index]
            index, users = (array[users & _HOLDERS == 0] for array in (index, users))
        free = index[users == 0]
        self.num_cached += index.size - free.size
        self._to_front(free)

    def keep(self, pages: PageArray) -> None:
        """The prefix cache wants these held pages to stay when their holders leave; none comes twice.

        Sequences that were forked share a page of two tails where they part, so it may be kept already.
        """
        users = self._users[pages]
        assert (users & _HOLDERS).all(), f"some of the {self.bucket} pages {pages} are not held"
        self._users[pages] = users + _KEEPER

    def forget(self, pages: PageArray) -> None:
        """The prefix cache lets go of pages it kept; those it keeps nowhere else are free if not held."""
        index = pages.ravel()
        users = self._users[index] - _KEEPER
        assert users.min(initial=0) >= 0, f"some of the {self.bucket} pages {pages} are not kept"
        self._users[index] = users
        idle = index[users == 0]
        self.num_cached -= idle.size
        self._to_front(idle)

    def _to_front(self, pages: PageArray) -> None:
        end = self._num_free + pages.size
        assert end <= self.num_pages, f"more {self.bucket} pages freed than there are"
        self._free[self._num_free : end] = pages
        self._num_free = end
