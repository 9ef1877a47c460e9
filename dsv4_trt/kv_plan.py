"""Pool sizes: how many pages of each size, for which sequences. Pure numbers, no tensors.

A pool has one page size, and pages of one can not stand in for another: pools in the wrong
proportion leave memory idle. So sizes are solved from the mix of sequences that is expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass

from dsv4_trt.errors import CapacityError, ConfigError
from dsv4_trt.kv_layout import Bucket, ClassLayout, KvLayout
from dsv4_trt.kv_mix import MAX_TOKENS, Load, mean_pages

MAX_PAGES = 2**31 - 1  # of one pool: page ids are int32


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPlan:
    """Pool sizes: what an engine allocates its slabs from."""

    layout: KvLayout
    num_pages: MappingABC[Bucket, int]

    @property
    def total_bytes(self) -> int:
        """Bytes of the three slabs."""
        return sum(n * self.layout.page_bytes[b] for b, n in self.num_pages.items())


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How many sequences pools hold at once, and the pool that runs out first."""

    sequences: int
    limited_by: Bucket


def plan_for_sequences(layout: KvLayout, max_seq_lens: list[int], tails: int = 1) -> KvPlan:
    """Pools that hold sequences of these lengths at once, whatever the steps look like."""
    total = dict.fromkeys(Bucket, 0)
    for length in max_seq_lens:
        for bucket, pages in layout.peak_pages_per_sequence(length, tails).items():
            total[bucket] += pages
    return KvPlan(layout=layout, num_pages=total)


def plan_pools(
    layout: KvLayout,
    memory_bytes: int,
    mix: Iterable[Load],
    *,
    max_seq_len: int,
    tails: int = 1,
    overrides: MappingABC[Bucket, int] | None = None,
) -> KvPlan:
    """Pools within `memory_bytes` for a mix of sequences; less than a page of each size stays unused.

    Pools are in the proportion in which the mix holds pages, windows at their mean: sequences stand
    at unrelated places of their windows, so what many of them hold together is close to the mean, and
    pools for all of them at their most would leave large pages idle (of 8K sequences every seventh).
    Each pool is at least what one sequence of `max_seq_len` can need in a step that passes `tails`
    tails; where that binds, the others share what is left. `overrides` sets the pages of a pool.

    Raises:
        CapacityError: one sequence of `max_seq_len` does not fit; names the largest that does. Or an
            override is above the budget, or a pool has more pages than int32 can name.
        ConfigError: a length, count or override that means nothing.
    """
    loads, fixed = tuple(mix), dict(overrides or {})
    _check_request(loads, fixed, max_seq_len, tails)
    budget = _Budget(layout, memory_bytes, fixed, tails)
    budget.check(max_seq_len)
    least = layout.peak_pages_per_sequence(max_seq_len, tails)
    pages = least | fixed
    shares = mean_pages(layout, loads)
    growing = [bucket for bucket in Bucket if bucket not in fixed and shares[bucket]]
    while growing:
        kept = sum(pages[b] * layout.page_bytes[b] for b in Bucket if b not in growing)
        weight = sum(shares[b] * layout.page_bytes[b] for b in growing)
        solved = {b: int((memory_bytes - kept) * shares[b] / weight) for b in growing}
        bound = [b for b in growing if solved[b] < least[b]]
        if not bound:
            pages |= solved
            break
        growing = [b for b in growing if b not in bound]
    plan = KvPlan(layout=layout, num_pages=pages)
    check_plan(plan, max_seq_len, tails)
    return plan


def check_plan(plan: KvPlan, max_seq_len: int, tails: int = 1) -> None:
    """Refuse pools in which one sequence of `max_seq_len` can not be placed, before anything waits.

    Raises `CapacityError` with the pool, its pages, the pages needed and the largest length that fits.
    """
    for bucket, pages in plan.num_pages.items():
        if pages > MAX_PAGES:
            raise CapacityError(
                f"the {bucket} pool would have {pages:,} pages; page ids are int32, so a pool has "
                f"{MAX_PAGES:,} at most; give the KV cache less memory"
            )
    for bucket, need in plan.layout.peak_pages_per_sequence(max_seq_len, tails).items():
        if need > plan.num_pages[bucket]:
            raise CapacityError(
                f"one sequence of max_seq_len {max_seq_len:,} can need {need:,} {bucket} pages, the "
                f"pool has {plan.num_pages[bucket]:,}; {_remedy(largest_sequence(plan, tails))}"
            )


def largest_sequence(plan: KvPlan, tails: int = 1) -> int:
    """Most tokens of a sequence that can always be placed in empty pools; 0 if not even one can."""

    def fits(length: int) -> bool:
        need = plan.layout.peak_pages_per_sequence(length, tails)
        return all(need[bucket] <= plan.num_pages[bucket] for bucket in Bucket)

    return _largest(fits)


def largest_in_memory(
    layout: KvLayout,
    memory_bytes: int,
    *,
    tails: int = 1,
    overrides: MappingABC[Bucket, int] | None = None,
) -> int:
    """Largest `max_seq_len` that `plan_pools` accepts with this budget, whatever the mix; 0 if none."""
    return _largest(_Budget(layout, memory_bytes, overrides or {}, tails).fits)


def concurrency(plan: KvPlan, length: int) -> Concurrency:
    """How many sequences of `length` tokens fit at rest, every window at its most."""
    need = dict.fromkeys(Bucket, 0)
    for kv in plan.layout.classes.values():
        need[kv.bucket] += most_pages(kv, length) * len(kv.layers)
    room = {b: plan.num_pages[b] // pages for b, pages in need.items() if pages}
    scarcest = min(room, key=lambda bucket: room[bucket])
    return Concurrency(room[scarcest], scarcest)


def most_pages(kv: ClassLayout, num_tokens: int) -> int:
    """Most pages of one layer that a sequence holds at rest on its way to `num_tokens`."""
    if kv.window is None:
        return kv.pages_for(num_tokens)
    return min(kv.window_pages, -(-num_tokens // kv.tokens_per_page))


@dataclass(frozen=True, slots=True)
class _Budget:
    """What a plan may spend: bytes, and pools whose pages are given."""

    layout: KvLayout
    memory_bytes: int
    fixed: MappingABC[Bucket, int]
    tails: int

    def need(self, length: int) -> int:
        """Bytes of the smallest pools for one sequence of `length`."""
        pages = self.layout.peak_pages_per_sequence(length, self.tails) | dict(self.fixed)
        return sum(n * self.layout.page_bytes[b] for b, n in pages.items())

    def short_pool(self, length: int) -> Bucket | None:
        """The first pool whose given pages do not hold a sequence of `length`."""
        peak = self.layout.peak_pages_per_sequence(length, self.tails)
        return next((b for b in Bucket if b in self.fixed and self.fixed[b] < peak[b]), None)

    def fits(self, length: int) -> bool:
        return self.short_pool(length) is None and self.need(length) <= self.memory_bytes

    def check(self, length: int) -> None:
        """Raise `CapacityError` if one sequence of `length` does not fit."""
        if self.fits(length):
            return
        remedy = _remedy(_largest(self.fits))
        bucket = self.short_pool(length)
        if bucket is not None:
            need = self.layout.peak_pages_per_sequence(length, self.tails)[bucket]
            raise CapacityError(
                f"the {bucket} pool is set to {self.fixed[bucket]:,} pages, one sequence of "
                f"max_seq_len {length:,} can need {need:,}; {remedy}"
            )
        given = "".join(f", {n:,} {b} pages as set" for b, n in self.fixed.items())
        raise CapacityError(
            f"pools for one sequence of max_seq_len {length:,} take {size_text(self.need(length))}"
            f"{given}; the KV cache has {size_text(max(self.memory_bytes, 0))}; {remedy}"
        )


def size_text(num_bytes: int) -> str:
    """Bytes as messages show them."""
    return f"{num_bytes / (1 << 30):.2f} GiB ({num_bytes:,} B)"


def _remedy(largest: int) -> str:
    if not largest:
        return "not even one token fits; give the KV cache more memory, or pools other sizes"
    return f"the largest max_seq_len that fits is {largest}"


def _largest(fits: Callable[[int], bool]) -> int:
    """Largest length that fits, by bisection: what fits a sequence fits a shorter one."""
    low, high = 0, MAX_TOKENS  # low fits or is 0
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _check_request(
    loads: tuple[Load, ...], fixed: MappingABC[Bucket, int], max_seq_len: int, tails: int
) -> None:
    if not 1 <= max_seq_len <= MAX_TOKENS:
        raise ConfigError(f"max_seq_len is {max_seq_len}; expected 1 to {MAX_TOKENS}")
    if tails < 0:
        raise ConfigError(f"tails is {tails}; expected at least 0")
    if not loads:
        raise ConfigError("the mix is empty; expected at least one load")
    for load in loads:
        if load.count < 1 or not 1 <= load.length <= max_seq_len:
            raise ConfigError(
                f"the mix has {load.count} sequences of {load.length} tokens; expected counts of at "
                f"least 1 and lengths of 1 to max_seq_len, {max_seq_len}"
            )
    for bucket, pages in fixed.items():
        if bucket not in list(Bucket) or pages < 0:
            raise ConfigError(
                f"override {bucket!s}={pages} means nothing; expected pages of "
                f"{', '.join(Bucket)}, at least 0"
            )
