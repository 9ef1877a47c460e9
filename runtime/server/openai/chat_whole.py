"""A chat completion in one piece."""

from __future__ import annotations

from typing import Any

from dsv4_trt.runtime.server.chat_answer import ChatAnswer
from dsv4_trt.runtime.server.openai.chat_deltas import new_call_id
from dsv4_trt.runtime.server.openai.chat_logprobs import ChatLogprobWriter


def chat_choice(
    answer: ChatAnswer, *, logprobs: ChatLogprobWriter | None, token_ids: bool
) -> dict[str, Any]:
    """A `ChatChoice` as plain JSON data."""
    choice = {
        "index": answer.index,
        "message": _message(answer),
        "logprobs": None if logprobs is None else logprobs.write(answer.index, answer.tokens),
        "finish_reason": answer.finish_reason,
        "stop_reason": answer.stop_reason,
    }
    if token_ids:
        choice["token_ids"] = [token.token_id for token in answer.tokens]
    return choice


def _message(answer: ChatAnswer) -> dict[str, Any]:
    content = None if answer.calls and not answer.content else answer.content
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": new_call_id(),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in answer.calls
        ]
    return message
