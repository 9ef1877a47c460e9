"""One request as the client saw it. Times are seconds on the clock of `time.perf_counter`."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

CANCELLED = "cancelled"  # the `error` of requests that the user's Ctrl-C ended


@dataclass(slots=True, kw_only=True)
class Record:
    """Times, tokens and failure of one request.

    Latencies begin at `scheduled`, not when the request was sent: one that had to wait for its turn in
    the client is as late to its user as one that waited in the server.
    """

    index: int
    scheduled: float  # when it was due
    sent: float | None = None  # when it was handed to the server
    ended: float | None = None
    arrivals: array[float] = field(default_factory=lambda: array("d"))  # chunks that bring tokens
    counts: array[int] = field(default_factory=lambda: array("l"))  # tokens of each
    input_tokens: int | None = None  # as the server counts them
    cached_tokens: int = 0  # of these, in the prefix cache
    output_tokens: int = 0  # as the server counts them, else as they arrived
    has_usage: bool = False
    num_by_text: int = 0  # chunks whose tokens could not be counted: text was there, so one or more
    finish_reason: str | None = None
    status: int | None = None  # HTTP's
    error: str | None = None  # kind of failure, such as "http 429", "timeout", "tokens"
    message: str = ""

    def arrive(self, now: float, tokens: int) -> None:
        """Note a chunk that brings `tokens` tokens."""
        self.arrivals.append(now)
        self.counts.append(tokens)

    def fail(self, kind: str, message: str) -> None:
        """Note why the request is not a success; the first reason stays."""
        if self.error is None:
            self.error, self.message = kind, message[:500]

    @property
    def streamed(self) -> int:
        """Tokens that arrived."""
        return sum(self.counts)

    @property
    def is_checked(self) -> bool:
        """Whether a token that was lost on the way would have shown."""
        return self.has_usage and self.num_by_text == 0

    @property
    def delay(self) -> float | None:
        """How long the client was late to send it."""
        return None if self.sent is None else self.sent - self.scheduled

    @property
    def ttft(self) -> float | None:
        """Time to the first token."""
        return self.arrivals[0] - self.scheduled if self.arrivals else None

    @property
    def e2el(self) -> float | None:
        """Time to the end of the answer."""
        return None if self.ended is None else self.ended - self.scheduled

    @property
    def tpot(self) -> float | None:
        """Time per output token after the first: (last - first) / (n - 1); None below two tokens."""
        if self.output_tokens < 2 or not self.arrivals:
            return None
        return (self.arrivals[-1] - self.arrivals[0]) / (self.output_tokens - 1)

    @property
    def itls(self) -> list[float]:
        """Gaps between chunks that bring tokens, one less than there are chunks."""
        return [late - early for early, late in pairwise(self.arrivals)]

    def as_json(self, began: float) -> dict[str, Any]:
        """Plain data; points in time are seconds since `began`."""
        return {
            "index": self.index,
            "scheduled_s": self.scheduled - began,
            "sent_s": None if self.sent is None else self.sent - began,
            "ended_s": None if self.ended is None else self.ended - began,
            "ttft_s": self.ttft,
            "tpot_s": self.tpot,
            "e2el_s": self.e2el,
            "itls_s": self.itls,
            "chunk_tokens": self.counts.tolist(),
            "input_tokens": self.input_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "finish_reason": self.finish_reason,
            "status": self.status,
            "error": self.error,
            "message": self.message,
        }
