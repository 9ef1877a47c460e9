"""The shapes of a chat completion, whole and in chunks, as the API's schema declares them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel

from dsv4_trt.runtime.server.openai.chat_logprobs import ChatLogprobs
from dsv4_trt.runtime.server.openai.usage import Usage

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]


class AnsweredFunction(BaseModel):
    """What to call; `arguments` is JSON text."""

    name: str
    arguments: str


class AnsweredCall(BaseModel):
    """A tool call."""

    id: str
    type: Literal["function"]
    function: AnsweredFunction


class AnswerMessage(BaseModel):
    """What the model said; `content` is null where there are calls alone."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | None = None
    tool_calls: list[AnsweredCall] | None = None


class ChatChoice(BaseModel):
    """One sequence; `stop_reason` is the stop string or token id that ended it, if one did."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    stop_reason: str | int | None
    token_ids: list[int] | None = None


class ChatCompletion(BaseModel):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | None = None


class FunctionDelta(BaseModel):
    """The next piece of a function's arguments, or its name."""

    name: str | None = None
    arguments: str


class CallDelta(BaseModel):
    """The next piece of a call; the first one has id, type and name."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionDelta


class MessageDelta(BaseModel):
    """What is new."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CallDelta] | None = None


class ChunkChoice(BaseModel):
    """News of one sequence."""

    index: int
    delta: MessageDelta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None


class ChatCompletionChunk(BaseModel):
    """One event of a stream; the last one has the usage and no choices, if usage was asked for."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChunkChoice]
    usage: Usage | None = None
    prompt_token_ids: list[int] | None = None
