"""Random prompts whose lengths are exact to the token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor

import numpy as np

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.bench.ask import Ask
from dsv4_trt.runtime.bench.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Tokens of prompts and answers: whole numbers, each between length * (1 - r) and length * (1 + r)."""

    input_len: int = 1024
    output_len: int = 128
    range_ratio: float = 0.0  # r
    prefix_len: int = 0  # the same tokens before every prompt, on top of input_len

    def check(self) -> None:
        """Raise `ConfigError` naming the first illegal number."""
        for name, least in (("input_len", 1), ("output_len", 1), ("prefix_len", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least {least}")
        if not 0 <= self.range_ratio < 1:
            raise ConfigError(f"range_ratio is {self.range_ratio}; expected 0 or more, below 1")

    def draw(self, rng: np.random.Generator, length: int, count: int) -> list[int]:
        """`count` lengths around `length`, none below 1."""
        low = max(1, ceil(length * (1 - self.range_ratio)))
        high = max(low, floor(length * (1 + self.range_ratio)))
        drawn: list[int] = rng.integers(low, high, count, endpoint=True).tolist()
        return drawn


def random_asks(
    count: int, lengths: Lengths, vocabulary: Vocabulary, seed: int, *, as_text: bool
) -> Iterator[Ask]:
    """`count` prompts, as texts or token ids; the same seed gives the same ones.

    Raises `ConfigError` for illegal lengths, or where no text of such a length is found.
    """
    lengths.check()
    rng = np.random.default_rng(seed)
    sizes = lengths.draw(rng, lengths.input_len, count)
    answers = lengths.draw(rng, lengths.output_len, count)
    shared = lengths.prefix_len
    if not as_text:
        ids = vocabulary.random_ids(rng, shared)
        for size, answer in zip(sizes, answers, strict=True):
            yield Ask(token_ids=ids + vocabulary.random_ids(rng, size), max_tokens=answer)
        return
    prefix = vocabulary.random_text(rng, shared) if shared else ""
    for size, answer in zip(sizes, answers, strict=True):
        text = vocabulary.random_text(rng, size, prefix, shared)
        yield Ask(text=text, max_tokens=answer)
