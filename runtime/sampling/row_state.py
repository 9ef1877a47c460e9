"""What the sampler knows of one sequence, and what it gives back for it.

Random numbers are a pure function of (seed, index, how many tokens the sequence has put out), so that a
sequence draws the same tokens whatever shares its batch, wherever it runs, and after being preempted.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.sampling.sampling_params import MAX_SEED, SamplingParams
from dsv4_trt.runtime.sampling.token_counts import TokenCounts


@dataclass(frozen=True, slots=True)
class SampledToken:
    """One chosen token.

    Log-probabilities are those of the model: log-softmax of the raw logits, before mask, bias,
    penalties, temperature and filters. `top` holds `logprobs` pairs of the most likely tokens, best
    first, ties by id; the chosen token is among them only if it belongs there.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True, kw_only=True)
class RowState:
    """One sequence as the sampler sees it; lives as long as the sequence.

    `output_ids` may be the sequence's own growing list; it is only ever appended to. `bitmask` is set
    anew before each step by whoever follows a grammar: int32 `[ceil(vocab / 32)]`, bit i % 32 of word
    i // 32 set = token i is allowed; None = all are.
    """

    name: str  # how errors call this row: the request's id
    params: SamplingParams
    eos_token_id: int
    prompt_ids: Sequence[int]
    output_ids: list[int] = field(default_factory=list)
    index: int = 0  # which of the request's n sequences; each draws its own numbers
    bitmask: npt.NDArray[np.int32] | None = None
    seed: int = field(init=False)
    _random: np.random.Philox | None = field(init=False, default=None, repr=False, compare=False)
    _random_at: int = field(init=False, default=-1, repr=False, compare=False)
    _seen: TokenCounts | None = field(init=False, default=None, repr=False, compare=False)
    _output: TokenCounts | None = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = self.params.seed
        self.seed = secrets.randbelow(MAX_SEED) if given is None else given

    @property
    def must_not_end(self) -> bool:
        """Whether `min_tokens` still bars the tokens that end the request."""
        return len(self.output_ids) < self.params.min_tokens

    def uniform(self) -> float:
        """The draw in [0, 1) that belongs to the next output token: 53 bits of Philox.

        Each token has a block of four words to itself and uses the first, so that a generator kept
        from token to token gives what one started at the token gives, for a small part of its price.
        """
        at = len(self.output_ids)
        if self._random is None or self._random_at != at:
            self._random = np.random.Philox(key=self.seed + (self.index << 64), counter=at)
        self._random_at = at + 1
        return float(int(self._random.random_raw(4)[0]) >> 11) * 2.0**-53

    def output_counts(self) -> TokenCounts:
        """How often each token id stands in the output; good until the next call."""
        if self._output is None:
            self._output = TokenCounts()
        self._output.follow(self.output_ids)
        return self._output

    def seen_ids(self) -> npt.NDArray[np.int64]:
        """Every token id of prompt and output once, in no order; good until the next call."""
        if self._seen is None:
            self._seen = TokenCounts(self.prompt_ids)
        self._seen.follow(self.output_ids)
        return self._seen.ids

    def check_bitmask(self, vocab_size: int) -> None:
        """Raise `RequestError` unless the bitmask has the dtype and size of this vocabulary."""
        if self.bitmask is None:
            return
        words = -(-vocab_size // 32)
        if self.bitmask.dtype != np.int32 or self.bitmask.shape != (words,):
            raise RequestError(
                f"token bitmask of {self.name} is {self.bitmask.dtype} "
                f"{list(self.bitmask.shape)}; expected int32 [{words}] for a vocabulary of "
                f"{vocab_size}"
            )
