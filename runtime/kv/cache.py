"""Pages of every running sequence, step by step.

A step is prepared, run and committed. Preparing allocates what the step writes and gives the block
tables and slot mappings; committing lets go of the pages that left their windows. If the engine fails
in between, `rollback` returns the cache to what it was.

Invariants: free + held = total in each pool; a page belongs to one sequence, class and layer; between
steps a sequence that holds n tokens holds exactly `layout.pages_per_sequence(n)` pages.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceABC
from dataclasses import dataclass, field

import numpy as np

from dsv4_trt.errors import CapacityError
from dsv4_trt.kv_layout import Bucket, CacheClass, ClassLayout
from dsv4_trt.kv_plan import KvPlan
from dsv4_trt.runtime.batch import IntArray
from dsv4_trt.runtime.kv.pool import PagePool


@dataclass(slots=True)
class Held:
    """Pages of one sequence in one class: columns are consecutive logical pages from `first`."""

    first: int
    pages: IntArray  # [layers, columns]

    @property
    def end(self) -> int:
        """Logical page after the last one held."""
        return self.first + int(self.pages.shape[1])


@dataclass(slots=True)
class SequencePages:
    """What one sequence holds in the classes of one network (the trunk's, or the MTP block's)."""

    num_tokens: int = 0
    held: dict[CacheClass, Held] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Advance:
    """One sequence's part of a step: it will hold `end` tokens."""

    pages: SequencePages
    end: int


@dataclass(slots=True)
class PreparedStep:
    """Tables and mappings of one step, and what to do once it has run."""

    advances: SequenceABC[Advance]
    block_tables: dict[CacheClass, IntArray] = field(default_factory=dict)
    slot_mappings: dict[CacheClass, IntArray] = field(default_factory=dict)
    taken: list[tuple[Bucket, IntArray]] = field(default_factory=list)
    after: list[dict[CacheClass, Held]] = field(default_factory=list)


class KvCache:
    """Pages of all sequences over the three pools of a plan."""

    def __init__(self, plan: KvPlan) -> None:
        self.layout = plan.layout
        self.pools = {bucket: PagePool(bucket, n) for bucket, n in plan.num_pages.items()}

    def open(self, *, mtp: bool = False) -> SequencePages:
        """A sequence without tokens; nothing of an earlier one can be seen through it.

        It has pages of the trunk's classes, or with `mtp` of the MTP block's.
        """
        layouts = self.layout.classes.values()
        own = [kv for kv in layouts if (kv.cache_class is CacheClass.MTP_SWA) == mtp]
        return SequencePages(
            held={kv.cache_class: Held(0, np.empty((len(kv.layers), 0), np.int32)) for kv in own}
        )

    def close(self, pages: SequencePages) -> None:
        """Return everything a sequence holds."""
        for cache_class, held in pages.held.items():
            self.pools[self.layout[cache_class].bucket].give(held.pages)
        pages.held.clear()
        pages.num_tokens = 0

    def prepare(self, advances: SequenceABC[Advance]) -> PreparedStep:
        """Allocate for a step, all or nothing; raises `CapacityError` before taking any page.

        All sequences of a step have pages of the same network, are open and come once.
        """
        networks = {tuple(advance.pages.held) for advance in advances}
        assert len(networks) == 1, f"one step of sequences that hold {networks}"
        assert networks != {()}, "a step of a closed sequence"
        once = {id(advance.pages) for advance in advances}
        assert len(once) == len(advances), f"{len(advances)} advances of {len(once)} sequences"
        self._check_room(advances)
        step = PreparedStep(advances=advances, after=[{} for _ in advances])
        for kv in self._classes(advances):
            for index, advance in enumerate(advances):
                step.after[index][kv.cache_class] = self._extend(kv, advance, step)
            step.block_tables[kv.cache_class] = _block_table(kv, step)
            step.slot_mappings[kv.cache_class] = _slot_mapping(kv, advances)
        return step

    def commit(self, step: PreparedStep) -> None:
        """The step has run: keep what the sequences need from here, free what left the windows."""
        for advance, after in zip(step.advances, step.after, strict=True):
            for cache_class, before in advance.pages.held.items():
                gone = min(after[cache_class].first, before.end) - before.first
                bucket = self.layout[cache_class].bucket
                self.pools[bucket].give(before.pages[:, : max(gone, 0)])
            advance.pages.held = after
            advance.pages.num_tokens = advance.end

    def rollback(self, step: PreparedStep) -> None:
        """The step did not run: give back what it took."""
        for bucket, pages in step.taken:
            self.pools[bucket].give(pages)

    def _classes(self, advances: SequenceABC[Advance]) -> list[ClassLayout]:
        return [self.layout[cache_class] for cache_class in advances[0].pages.held]

    def _check_room(self, advances: SequenceABC[Advance]) -> None:
        need = dict.fromkeys(Bucket, 0)
        for kv in self._classes(advances):
            for advance in advances:
                start, end = _new_columns(kv, advance)
                need[kv.bucket] += (end - start) * len(kv.layers)
        for bucket, pages in need.items():
            pool = self.pools[bucket]
            if pages > pool.num_free:
                raise CapacityError(
                    f"this step needs {pages} pages of the {bucket} pool, which has "
                    f"{pool.num_free} of {pool.num_pages} free; run fewer or shorter sequences, or "
                    "plan larger pools"
                )

    def _extend(self, kv: ClassLayout, advance: Advance, step: PreparedStep) -> Held:
        before = advance.pages.held[kv.cache_class]
        start, end = _new_columns(kv, advance)
        layers = len(kv.layers)
        fresh = self.pools[kv.bucket].take(layers * (end - start)).reshape(layers, end - start)
        step.taken.append((kv.bucket, fresh))
        first = kv.first_page(advance.end)
        kept = before.pages[:, max(first - before.first, 0) :]
        return Held(first, np.concatenate([kept, fresh], axis=1))


def _new_columns(kv: ClassLayout, advance: Advance) -> tuple[int, int]:
    """Logical pages [start, end) that the step adds to what the sequence holds."""
    end = -(-advance.end // kv.tokens_per_page)
    start = max(advance.pages.held[kv.cache_class].end, kv.first_page(advance.end))
    return min(start, end), end


def _block_table(kv: ClassLayout, step: PreparedStep) -> IntArray:
    held = [after[kv.cache_class] for after in step.after]
    if kv.window is None:
        width = max((h.pages.shape[1] for h in held), default=0)
        table = np.full((len(kv.layers), len(held), width), -1, np.int32)
        for row, after in enumerate(held):
            table[:, row, : after.pages.shape[1]] = after.pages
        return table
    half = kv.window_pages
    table = np.full((len(kv.layers), len(held), 2 * half), -1, np.int32)
    for row, (advance, after) in enumerate(zip(step.advances, held, strict=True)):
        before = advance.pages.held[kv.cache_class].pages
        table[:, row, : before.shape[1]] = before
        table[:, row, half : half + after.pages.shape[1]] = after.pages
    return table


def _slot_mapping(kv: ClassLayout, advances: SequenceABC[Advance]) -> IntArray:
    parts = [np.empty(0, np.int32)]
    for advance in advances:
        positions = np.arange(advance.pages.num_tokens, advance.end, dtype=np.int32)
        if kv.window is None:
            completes = (positions + 1) % kv.ratio == 0
            slots = positions // kv.ratio
        else:
            completes = positions >= kv.first_token(advance.end)
            slots = positions - kv.first_page(advance.end) * kv.tokens_per_page
        parts.append(np.where(completes, slots, -1).astype(np.int32))
    return np.concatenate(parts)
