"""One sequence of a request, from its arrival to its end."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np

from dsv4_trt.kv_layout import LOGICAL_BLOCK
from dsv4_trt.runtime.batch import IntArray
from dsv4_trt.runtime.kv.block_hashes import extend_hashes
from dsv4_trt.runtime.kv.prefix_cache import Tail
from dsv4_trt.runtime.request import Request

NO_ROW = -1


class Status(Enum):
    """Where a sequence is."""

    WAITING = auto()  # new or preempted: holds no page
    PREFILLING = auto()  # has a row; tokens it knows are still to be fed
    DECODING = auto()  # has a row; only its newest token is to be fed
    FINISHED = auto()


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens known so far, and how many of them the cache holds."""

    request: Request
    index: int  # which of the request's sequences
    buffer: array[int]  # prompt + max_tokens ids, known up to `length`
    length: int
    num_prompt: int
    arrival: int = 0  # rises from request to request
    status: Status = Status.WAITING
    row: int = NO_ROW
    num_computed: int = 0
    has_fed: bool = False  # at least one chunk since it got its row
    was_preempted: bool = False
    num_cached: int | None = None  # tokens that its first admission found in the prefix cache
    hashes: list[bytes] = field(default_factory=list)
    prompt_tail: Tail | None = None
    output_tail: Tail | None = None

    @staticmethod
    def begin(request: Request) -> Sequence:
        """The first sequence of a request."""
        num_prompt = len(request.prompt_ids)
        buffer = array("i", request.prompt_ids)
        buffer.frombytes(bytes(request.params.max_tokens * buffer.itemsize))
        return Sequence(request, 0, buffer, num_prompt, num_prompt)

    def sibling(self, index: int) -> Sequence:
        """Another sequence of the same request, with nothing but the prompt."""
        buffer = self.buffer[:]
        hashes = self.hashes[: self.num_prompt // LOGICAL_BLOCK]
        return Sequence(
            self.request,
            index,
            buffer,
            self.num_prompt,
            self.num_prompt,
            self.arrival,
            hashes=hashes,
        )

    @property
    def tokens(self) -> IntArray:
        """The ids known so far, `[length]`, in place."""
        return np.frombuffer(self.buffer, np.int32, self.length)

    @property
    def key(self) -> tuple[int, int]:
        """What tells a sequence from all others of an executor, ended ones too."""
        return (self.arrival, self.index)

    @property
    def order(self) -> tuple[float, int, int]:
        """Order of service, smallest first: priority, then arrival."""
        return (-self.request.priority, self.arrival, self.index)

    def begin_prefill(self, row: int, num_cached: int) -> None:
        """It got a row, which holds its first `num_cached` tokens."""
        self.status, self.row, self.has_fed = Status.PREFILLING, row, False
        self.num_computed = num_cached
        if self.num_cached is None:
            self.num_cached = num_cached

    def append(self, token_id: int) -> None:
        """A new output token, which is not computed yet."""
        self.buffer[self.length] = token_id
        self.length += 1

    def block_hashes(self) -> list[bytes]:
        """Hashes of all complete blocks of the tokens known so far."""
        extend_hashes(self.hashes, self.tokens, self.request.cache_salt)
        return self.hashes


def rows_of(sequences: Iterable[Sequence]) -> IntArray:
    """Rows of the block tables, in the order of the sequences."""
    return np.array([sequence.row for sequence in sequences], np.int32)
