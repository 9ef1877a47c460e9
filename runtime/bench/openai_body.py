"""Requests and streamed chunks in OpenAI's protocol, as far as a load tool looks at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.bench.ask import Ask

Endpoint: TypeAlias = Literal["chat", "completions"]
CountBy: TypeAlias = Literal["token_ids", "logprobs", "chunks"]

LOGPROBS = (
    "content",
    "reasoning_content",
    "refusal",
    "tokens",
)  # lists with an item for each token
PATHS: dict[Endpoint, str] = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


def request_body(
    ask: Ask, endpoint: Endpoint, model: str, count_by: CountBy, more: Mapping[str, Any]
) -> dict[str, Any]:
    """The JSON body of a streaming request; `more` wins over everything else.

    Raises `RequestError` for a prompt that the endpoint does not take.
    """
    body: dict[str, Any] = {"model": model}
    if endpoint == "chat":
        if ask.token_ids is not None:
            raise RequestError("a prompt of token ids can not be chat; use --endpoint completions")
        body["messages"] = ask.messages or [{"role": "user", "content": ask.text}]
    else:
        if ask.messages is not None:
            raise RequestError("messages can not be a completion; use --endpoint chat")
        body["prompt"] = ask.text if ask.token_ids is None else ask.token_ids
    body |= {"max_tokens": ask.max_tokens, "stream": True}
    body["stream_options"] = {"include_usage": True}
    if count_by == "token_ids":
        body["return_token_ids"] = True
    elif count_by == "logprobs":
        body["logprobs"] = True if endpoint == "chat" else 0
    return {**body, **more}


def chunk_tokens(choice: Mapping[str, Any]) -> tuple[int, bool]:
    """Tokens of a chunk's choice, and whether they were counted or only text was seen.

    Token ids are counted, else log-probabilities. Text alone is at least one token.
    """
    token_ids = choice.get("token_ids")
    if token_ids is not None:
        return len(token_ids), True
    logprobs = choice.get("logprobs")
    if logprobs is not None:
        return sum(len(logprobs.get(name) or ()) for name in LOGPROBS), True
    return (1 if _has_output(choice) else 0), False


def _has_output(choice: Mapping[str, Any]) -> bool:
    if choice.get("text"):
        return True
    delta = choice.get("delta") or {}
    return any(
        delta.get(name) for name in ("content", "reasoning_content", "reasoning", "tool_calls")
    )
