"""Whether the first in the queue may run: it needs the pages of its whole prompt, cached ones included.

Windows of running sequences grow and shrink while tokens come; what they lack to their mean counts as
taken, and to their most for a sequence that was preempted before, so that it does not come back only to
be preempted again.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dsv4_trt.kv_layout import Bucket
from dsv4_trt.runtime.batch import IntArray
from dsv4_trt.runtime.kv.cache import KvCache
from dsv4_trt.runtime.kv.prefix_cache import Tail
from dsv4_trt.runtime.kv.retention import Retention
from dsv4_trt.runtime.schedule.demand import Demand, Need, add
from dsv4_trt.runtime.schedule.sequence import Sequence, Status, rows_of


class Admission:
    """Looks at one sequence at a time, and not again before something has come free."""

    def __init__(self, kv: KvCache, demand: Demand, retention: Retention | None) -> None:
        self.kv = kv
        self.demand = demand
        self.retention = retention
        self._blocked: tuple[Sequence, list[int]] | None = None  # who, and the pages there were

    def admit(self, head: Sequence, need: Need, num_tokens: IntArray) -> bool:
        """Give a waiting sequence a row and a cached beginning, if there is room.

        `need` is what the step takes so far, `num_tokens` what each running sequence will hold after it.
        """
        if self.is_blocked(head):
            return False
        if not (self.kv.num_free_rows and self._fits(head, need, num_tokens)):
            self._blocked = (head, self._available(need))
            return False
        self._blocked = None
        return True

    def is_blocked(self, head: Sequence) -> bool:
        """Whether nothing came free since this sequence last found no room."""
        if self._blocked is None or self._blocked[0] is not head:
            return False
        now, then = self._available(), self._blocked[1]
        return all(a <= b for a, b in zip(now, then, strict=True))

    def has_room_beside(self, head: Sequence, running: Iterable[Sequence], freed: Need) -> bool:
        """Whether `admit` would find room in a step of these running ones, with `freed` more pages."""
        tail = self._find(head)
        cached = 0 if tail is None else tail.num_tokens
        claim = add(self.demand.held(cached), self.demand.to_finish_prompt(cached, head.length))
        sequences = tuple(running)
        rows = rows_of(s for s in sequences if s.status is Status.DECODING)
        ends = [s.num_computed + (s.status is Status.DECODING) for s in sequences]
        decodes = self.kv.need(rows, self.kv.num_tokens[rows] + 1)
        need = add(claim, decodes, self._growth(head, np.array(ends, np.int32)))
        pools = self.kv.pools
        return all(pools[b].num_available + freed[b] >= pages for b, pages in need.items())

    def _fits(self, head: Sequence, need: Need, num_tokens: IntArray) -> bool:
        row = self.kv.open()
        tail = self._find(head)
        cached = 0 if tail is None else tail.num_tokens
        if tail is not None:
            self.kv.adopt(row, tail)
        claim = self.demand.to_finish_prompt(cached, head.length)
        if not self.kv.has_room(add(need, claim, self._growth(head, num_tokens))):
            self.kv.close(row)
            return False
        if tail is not None:
            self.kv.prefix.use(tail, head.key)
        head.begin_prefill(row, cached)
        return True

    def _growth(self, head: Sequence, num_tokens: IntArray) -> Need:
        if head.was_preempted:
            return self.demand.to_most_windows(num_tokens)
        return self.demand.to_mean_windows(num_tokens)

    def _find(self, head: Sequence) -> Tail | None:
        if self.retention is None:
            return None
        return self.kv.prefix.find(head.block_hashes(), head.length - 1)

    def _available(self, need: Need | None = None) -> list[int]:
        """Rows, and pages of each pool but for those that a step needs."""
        taken = need or dict.fromkeys(Bucket, 0)
        pages = (pool.num_available - taken[bucket] for bucket, pool in self.kv.pools.items())
        return [self.kv.num_free_rows, *pages]
