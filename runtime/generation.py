"""A request while it lives: its sequences, and for each what sampler and text need to know."""

from __future__ import annotations

from dataclasses import dataclass, field

from dsv4_trt.runtime.guided.compiler import Grammar
from dsv4_trt.runtime.guided.guide import Guide
from dsv4_trt.runtime.request import FinishReason, Request
from dsv4_trt.runtime.sampling.row_state import RowState, SampledToken
from dsv4_trt.runtime.schedule.sequence import Sequence
from dsv4_trt.runtime.text.text_stream import TextStream


@dataclass(slots=True, eq=False)
class Generation:
    """One sequence as the executor drives it."""

    request: LiveRequest
    sequence: Sequence
    row_state: RowState
    text: TextStream | None  # None where only token ids count
    guide: Guide | None = None  # of what must look a certain way

    def __post_init__(self) -> None:
        if self.guide is not None:
            self.row_state.bitmask = self.guide.bitmask  # which always is for the next token

    def take(self, token: SampledToken) -> tuple[str, FinishReason | None]:
        """Append a token; returns the text it completed, and the reason if the sequence ends.

        Raises what `Guide.advance` does.
        """
        self.row_state.output_ids.append(token.token_id)
        self.sequence.append(token.token_id)
        params = self.row_state.params
        is_full = len(self.row_state.output_ids) >= params.max_tokens
        if self.text is None:
            shown, stopped = "", self._is_end(token.token_id)
        else:
            shown = self.text.push(token.token_id)
            if is_full and self.text.matched is None:
                shown += self.text.finish()
            stopped = self.text.matched is not None
        if not stopped and not is_full and self._is_complete(token.token_id):
            return shown + ("" if self.text is None else self.text.finish()), "stop"
        return shown, "stop" if stopped else "length" if is_full else None

    def _is_complete(self, token_id: int) -> bool:
        """Take the grammar a token further; whether there is nothing that may follow it."""
        if self.guide is None:
            return False
        self.guide.advance(token_id)
        return self.guide.is_over

    @property
    def marks(self) -> tuple[int, ...]:
        """Where the newest token is markup, as an `Update` tells it."""
        return () if self.text is None or self.text.mark is None else (self.text.mark,)

    @property
    def stop_reason(self) -> str | int | None:
        """The stop string or token id that ended the sequence."""
        if self.text is not None:
            return self.text.matched
        newest = self.row_state.output_ids[-1] if self.row_state.output_ids else None
        return newest if newest is not None and self._is_end(newest) else None

    def _is_end(self, token_id: int) -> bool:
        params = self.row_state.params
        may_end = len(self.row_state.output_ids) > params.min_tokens
        return may_end and token_id in params.end_token_ids(self.row_state.eos_token_id)


@dataclass(slots=True, eq=False)
class LiveRequest:
    """An accepted request that has not ended."""

    request: Request
    submitted: float  # seconds on the executor's clock
    grammar: Grammar | None = None  # that each sequence follows
    generations: list[Generation] = field(default_factory=list)  # those that have not ended
    num_begun: int = 0  # sequences so far; `params.n` once the prompt is computed
    has_started: bool = False
    has_token: bool = False
    reason: FinishReason | None = None  # of the sequence that ended last; an error stays
