"""Shapes of answers, for the served OpenAPI; answers themselves are plain dicts."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from dsv4_trt.runtime.server.anthropic.message import StopReason


class TextAnswer(BaseModel):
    """Text of the answer."""

    type: Literal["text"]
    text: str


class ThinkingAnswer(BaseModel):
    """Reasoning before the answer, and what a client sends back with it."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUseAnswer(BaseModel):
    """A call for the client to run."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class OutputTokensDetails(BaseModel):
    """Parts of `output_tokens`."""

    thinking_tokens: int


class Usage(BaseModel):
    """Token counts of a message."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputTokensDetails


class MessageAnswer(BaseModel):
    """An answer in one piece."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[TextAnswer | ThinkingAnswer | ToolUseAnswer]
    stop_reason: StopReason
    stop_sequence: str | None
    usage: Usage


class TokensCount(BaseModel):
    """How many tokens a prompt has."""

    input_tokens: int


class ErrorObject(BaseModel):
    """What went wrong."""

    type: str
    message: str


class ErrorAnswer(BaseModel):
    """Every answer that is not a success."""

    type: Literal["error"]
    error: ErrorObject
    request_id: str | None = None
