"""The shape of a completion, whole and in chunks, as the API's schema declares it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from dsv4_trt.runtime.server.openai.text_logprobs import TextLogprobs
from dsv4_trt.runtime.server.openai.usage import Usage


class TextChunkChoice(BaseModel):
    """News of one sequence; `index` counts the n sequences of the first prompt, then the next one's."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length"] | None
    stop_reason: str | int | None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class TextChoice(TextChunkChoice):
    """One sequence."""

    finish_reason: Literal["stop", "length"]


class Completion(BaseModel):
    """A whole answer."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: Usage


class CompletionChunk(BaseModel):
    """One event of a stream; the last one has the usage and no choices, if usage was asked for."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChunkChoice]
    usage: Usage | None = None
