"""Follows one sequence through its grammar: which tokens may come next, and whether any may."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from dsv4_trt.errors import EngineFault, RequestError
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams

Words = npt.NDArray[np.int32]
BURST_SECONDS = 0.5  # of one core, over what SECONDS_PER_TOKEN allows
SECONDS_PER_TOKEN = 2e-3  # an ordinary grammar takes 0.1 ms


class Guide:
    """State of one sequence; `bitmask` is for its next token, in the form `RowState` has it.

    Before `start_after` all tokens but the end-of-text one are allowed. Where the grammar is complete
    the tokens that end the request are allowed as well; if nothing else is and they are barred, by
    `min_tokens` or because there are none, `is_over` says that the sequence ends here.
    """

    def __init__(
        self, matcher: Any, allowed: Words, params: SamplingParams, eos_token_id: int
    ) -> None:
        """Take over a new matcher; `allowed` are the tokens that its grammar may put out at all."""
        assert params.guided_decoding is not None
        self._matcher = matcher
        self._allowed = allowed
        self._params = params
        self._eos = eos_token_id
        self._awaited = params.guided_decoding.start_after
        self._num_tokens = 0
        self._seconds = 0.0
        self.is_over = False
        self.bitmask: Words = np.full_like(allowed, -1)
        if self._awaited is None:
            self._look()
        else:
            _set_bits(self.bitmask, (eos_token_id,), False)

    def advance(self, token_id: int) -> None:
        """Take the sequence's next token, unless it ended the request.

        Raises `EngineFault` for one that the bitmask did not allow, and `RequestError` if this grammar
        takes more of the executor's time than a sequence may.
        """
        self._num_tokens += 1
        if self._awaited is not None:
            if token_id != self._awaited:
                return
            self._awaited = None
            return self._look()
        started = time.thread_time()
        if not self._matcher.accept_token(token_id):
            raise EngineFault(
                f"token {token_id} was sampled, which the grammar of this sequence does not allow; "
                "the sequence has ended, run it again"
            )
        self._look()
        self._seconds += time.thread_time() - started
        if self._seconds > BURST_SECONDS + SECONDS_PER_TOKEN * self._num_tokens:
            raise RequestError(
                f"the grammar took {self._seconds:.2f} s for {self._num_tokens} tokens, which holds "
                "up all other requests; write one with fewer alternatives and bounded repeats",
                parameter="guided_decoding",
            )

    def _look(self) -> None:
        """Find what may come next."""
        ends = self._params.end_token_ids(self._eos)
        words = self.bitmask.reshape(1, -1)
        if not self._matcher.fill_next_token_bitmask(words):
            words.fill(-1)  # all are allowed, and nothing was written
        self.bitmask &= self._allowed
        if not _has_bit(self.bitmask, self._eos):
            return
        _set_bits(self.bitmask, (self._eos, *ends), False)
        may_end = ends and self._num_tokens >= self._params.min_tokens
        self.is_over = not may_end and not self.bitmask.any()
        _set_bits(self.bitmask, ends, True)


def _has_bit(words: Words, token_id: int) -> bool:
    return bool(words[token_id // 32] >> (token_id % 32) & 1)


def _set_bits(words: Words, token_ids: tuple[int, ...], value: bool) -> None:
    for token_id in token_ids:
        bit = np.uint32(1 << token_id % 32).astype(np.int32)
        words[token_id // 32] = (
            words[token_id // 32] | bit if value else words[token_id // 32] & ~bit
        )
