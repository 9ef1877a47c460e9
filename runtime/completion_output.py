"""One generated sequence as a client sees it: its tokens and text so far, and why it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import fsum

from dsv4_trt.errors import Dsv4Error
from dsv4_trt.runtime.request import FinishReason
from dsv4_trt.runtime.sampling.row_state import SampledToken
from dsv4_trt.runtime.update import Update


@dataclass(frozen=True, slots=True)
class Logprob:
    """Log-probability of a token in the raw logits, and its place among the reported best ones."""

    logprob: float
    rank: int | None  # from 1; None for a chosen token that is not among the best


@dataclass(slots=True)
class CompletionOutput:
    """One of a request's `n` sequences. What ends in `_diff` came since the request was last yielded."""

    index: int
    with_logprobs: bool = False
    tokens: list[SampledToken] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # what each token completed
    token_marks: list[tuple[int, ...]] = field(default_factory=list)  # where each token is markup
    finish_reason: FinishReason | None = None  # None while the sequence goes on
    stop_reason: str | int | None = None  # the stop string or token id that ended it
    error: Dsv4Error | None = None  # with the reason "error"
    num_seen: int = 0  # tokens at the last yield but one

    @property
    def text(self) -> str:
        """Text so far; empty without a tokenizer."""
        return "".join(self.texts)

    @property
    def text_diff(self) -> str:
        """Text since the last yield."""
        return "".join(self.texts[self.num_seen :])

    @property
    def marks(self) -> list[int]:
        """Character offsets in the text at which tokens that are markup begin, such as `</think>`.

        The same text spelled by other tokens has none. The text of a mark may come later than it, or be
        cut off by a stop string.
        """
        return [mark for marks in self.token_marks for mark in marks]

    @property
    def marks_diff(self) -> list[int]:
        """Marks since the last yield; their offsets too are from the beginning of the text."""
        return [mark for marks in self.token_marks[self.num_seen :] for mark in marks]

    @property
    def token_ids(self) -> list[int]:
        """Token ids so far, the one that stopped the sequence included."""
        return [token.token_id for token in self.tokens]

    @property
    def token_ids_diff(self) -> list[int]:
        """Token ids since the last yield."""
        return [token.token_id for token in self.tokens[self.num_seen :]]

    @property
    def logprobs(self) -> list[dict[int, Logprob]]:
        """For each token the best ones and itself, by token id; empty unless they were asked for."""
        return self._logprobs(0)

    @property
    def logprobs_diff(self) -> list[dict[int, Logprob]]:
        """Log-probabilities since the last yield."""
        return self._logprobs(self.num_seen)

    @property
    def cumulative_logprob(self) -> float:
        """Log-probability of the whole sequence under the model's raw logits."""
        return fsum(token.logprob for token in self.tokens)

    @property
    def length(self) -> int:
        """Tokens so far."""
        return len(self.tokens)

    def take(self, update: Update) -> None:
        """Append one update's news; a sequence that has ended stays as it is."""
        if self.finish_reason is not None:
            return
        if update.token is not None:
            self.tokens.append(update.token)
            self.texts.append(update.text)
            self.token_marks.append(update.marks)
        self.finish_reason = update.finish_reason
        self.stop_reason, self.error = update.stop_reason, update.error

    def _logprobs(self, start: int) -> list[dict[int, Logprob]]:
        return [_by_id(token) for token in self.tokens[start:]] if self.with_logprobs else []


def _by_id(token: SampledToken) -> dict[int, Logprob]:
    found = {i: Logprob(logprob, rank) for rank, (i, logprob) in enumerate(token.top, 1)}
    found.setdefault(token.token_id, Logprob(token.logprob, None))
    return found
