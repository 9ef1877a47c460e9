"""The expected mix of sequences that pools are solved for, and the pages it holds. Pure numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from dsv4_trt.errors import ConfigError
from dsv4_trt.kv_layout import Bucket, ClassLayout, KvLayout

MAX_TOKENS = 2**31 - 1  # of one sequence: positions are int32
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}


@dataclass(frozen=True, slots=True)
class Load:
    """A share of the expected traffic: `count` sequences that hold `length` tokens each."""

    count: int
    length: int


DEFAULT_MIX = (Load(64, 8 << 10), Load(8, 128 << 10))


def parse_mix(text: str) -> tuple[Load, ...]:
    """Read a mix such as `64x8K,8x128K`: count x tokens, where K is 1,024 and M is 1,048,576.

    Raises `ConfigError` for anything else.
    """
    loads = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,9})x(\d{1,9})([KM]?)", part.strip(), re.ASCII)
        load = Load(int(found[1]), int(found[2]) * _UNITS[found[3]]) if found else Load(0, 0)
        if not (load.count and 1 <= load.length <= MAX_TOKENS):
            raise ConfigError(
                f"{part[:40]!r} is no part of a mix; expected COUNTxTOKENS, both at least 1, such as "
                "64x8K, and commas between them"
            )
        loads.append(load)
    return tuple(loads)


def mean_pages(layout: KvLayout, mix: Iterable[Load]) -> dict[Bucket, Fraction]:
    """Pages per bucket that the sequences of a mix hold at rest, on average.

    Lengths are spread around those of the mix, so the last logical block is half full on average, and
    windows count at the mean over all places in them.
    """
    pages = dict.fromkeys(Bucket, Fraction(0))
    for load in mix:
        for kv in layout.classes.values():
            pages[kv.bucket] += load.count * len(kv.layers) * _mean(kv, load.length)
    return pages


def mean_window_pages(kv: ClassLayout) -> Fraction:
    """Pages of one layer that a window holds, on average over all places in it."""
    assert kv.window is not None, f"{kv.cache_class} is not a window class"
    period = lcm(kv.tokens_per_page, kv.group or 1)
    start = -(-kv.window // period) * period
    return Fraction(sum(kv.pages_for(start + i) for i in range(period)), period)


def _mean(kv: ClassLayout, num_tokens: int) -> Fraction:
    """Pages of one layer."""
    if kv.window is None:
        return Fraction(num_tokens, kv.tokens_per_page) + Fraction(1, 2)
    return min(mean_window_pages(kv), Fraction(kv.end_page(num_tokens)))
