"""A chat completion in one piece."""

from __future__ import annotations

from typing import Any

from dsv4_trt.runtime.server.chat_answer import ChatAnswer
from dsv4_trt.runtime.server.chat_run import ChatRun
from dsv4_trt.runtime.server.early_end import check_ended
from dsv4_trt.runtime.server.json_answer import aside_if_many
from dsv4_trt.runtime.server.openai.answer_head import AnswerHead
from dsv4_trt.runtime.server.openai.chat_deltas import new_call_id
from dsv4_trt.runtime.server.openai.chat_logprobs import ChatLogprobWriter
from dsv4_trt.runtime.server.openai.usage import usage


async def whole_chat(
    head: AnswerHead, run: ChatRun, *, logprobs: ChatLogprobWriter | None, token_ids: bool
) -> dict[str, Any]:
    """Wait for a `ChatCompletion`, as plain JSON data; raises `Refusal` if the server ended it."""
    answers = await run.whole()
    for answer in answers:
        check_ended(answer.finish_reason)
    found = head.of("chat.completion")
    found["choices"] = await aside_if_many(
        run.completion_tokens,
        lambda: [chat_choice(a, logprobs=logprobs, token_ids=token_ids) for a in answers],
    )
    found["usage"] = usage(run)
    if token_ids:
        found["prompt_token_ids"] = run.prompt_ids
    return found


def chat_choice(
    answer: ChatAnswer, *, logprobs: ChatLogprobWriter | None, token_ids: bool
) -> dict[str, Any]:
    """A `ChatChoice` as plain JSON data."""
    choice = {
        "index": answer.index,
        "message": _message(answer),
        "logprobs": None
        if logprobs is None
        else logprobs.write(answer.tokens, answer.num_reasoning),
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
