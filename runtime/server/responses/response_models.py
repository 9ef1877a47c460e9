"""Shapes of answers, for the served OpenAPI; answers themselves are plain dicts."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class ReasoningPart(BaseModel):
    """A piece of reasoning, or of its summary."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningAnswer(BaseModel):
    """What the model thought: in `content`, or in `summary` where one was asked for."""

    type: Literal["reasoning"]
    id: str
    status: ItemStatus
    summary: list[ReasoningPart]
    content: list[ReasoningPart] | None = None
    encrypted_content: str | None = None


class TextAnswer(BaseModel):
    """Text of the answer."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[Any]


class MessageAnswer(BaseModel):
    """What the model says."""

    type: Literal["message"]
    id: str
    status: ItemStatus
    role: Literal["assistant"]
    content: list[TextAnswer]


class CallAnswer(BaseModel):
    """A call for the client to run, unless it is incomplete."""

    type: Literal["function_call"]
    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


class InputTokensDetails(BaseModel):
    """Parts of `input_tokens`."""

    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(BaseModel):
    """Parts of `output_tokens`."""

    reasoning_tokens: int


class Usage(BaseModel):
    """Token counts of a response."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(BaseModel):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"]


class ResponseAnswer(BaseModel):
    """A response; fields of the request come back as they were given, or with their defaults."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None = None
    status: Literal["completed", "incomplete"]
    background: Literal[False]
    error: None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[ReasoningAnswer | MessageAnswer | CallAnswer]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: dict[str, str | None]
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_p: float
    truncation: Literal["disabled"]
    usage: Usage
    user: str | None


class DeletedAnswer(BaseModel):
    """A response is forgotten."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class InputTokensAnswer(BaseModel):
    """How many tokens a prompt has."""

    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int
