"""The sequences of a ragged step: which token rows are whose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class Span(NamedTuple):
    """One sequence's rows `begin..end` (exclusive) of a step; the first has position `start`."""

    seq: int
    begin: int
    end: int
    start: int

    @property
    def length(self) -> int:
        """Tokens of the sequence once the step is done."""
        return self.start + self.end - self.begin


def spans(query_start: Tensor, seq_lens: Tensor) -> Iterator[Span]:
    """Sequences that have tokens in this step; padding sequences (length 0) are left out."""
    edges = query_start.tolist()
    for seq, length in enumerate(seq_lens.tolist()):
        begin, end = edges[seq], edges[seq + 1]
        if length > 0 and end > begin:
            yield Span(seq, begin, end, length - (end - begin))


def start_positions(query_start: Tensor, seq_lens: Tensor) -> Tensor:
    """Tokens each sequence held before the step, int64 `[S]`."""
    return seq_lens.long() - torch.diff(query_start).long()
