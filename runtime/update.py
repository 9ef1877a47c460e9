"""What the executor tells about a request: one update for each sequence that a step moved."""

from __future__ import annotations

from dataclasses import dataclass

from dsv4_trt.errors import Dsv4Error
from dsv4_trt.runtime.request import FinishReason
from dsv4_trt.runtime.sampling.row_state import SampledToken


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """News of one sequence. Of all updates of a request exactly one, the last, has `finished`."""

    request_id: str
    index: int  # which of the request's sequences
    token: SampledToken | None = None  # None where a sequence ended without a further token
    text: str = ""  # what the token completed
    marks: tuple[
        int, ...
    ] = ()  # offset in the sequence's text where the token is markup; may be ahead
    finish_reason: FinishReason | None = None  # why this sequence ended; None while it goes on
    stop_reason: str | int | None = None  # the stop string or token id that ended it
    error: Dsv4Error | None = None  # with the reason "error"
    num_cached: int | None = None  # prompt tokens that were in the prefix cache; None = not known
    finished: bool = False
