"""The response object: what was asked, and what came of it."""

from __future__ import annotations

import time
from secrets import token_hex
from typing import Any

from dsv4_trt.runtime.server.failures import Failure
from dsv4_trt.runtime.server.responses.request_models import ResponseRequest
from dsv4_trt.runtime.server.sse import Run


def begin(body: ResponseRequest, model: str) -> dict[str, Any]:
    """The object of a request that was accepted."""
    reasoning = body.reasoning
    return {
        "id": f"resp_{token_hex(16)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "model": model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": {
            "effort": None if reasoning is None else reasoning.effort,
            "summary": None if reasoning is None else reasoning.summary,
        },
        "store": body.is_stored,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": _text(body),
        "tool_choice": _choice(body),
        "tools": [_tool(tool.model_dump()) for tool in body.tools or ()],
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": body.user,
    }


def end(
    begun: dict[str, Any], output: list[dict[str, Any]], usage: dict[str, Any], finish_reason: str
) -> dict[str, Any]:
    """The object of an answer that ended by itself, or with the tokens it may have."""
    is_cut = finish_reason == "length"
    return begun | {
        "status": "incomplete" if is_cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "completed_at": None if is_cut else int(time.time()),
        "output": output,
        "usage": usage,
    }


def fail(begun: dict[str, Any], output: list[dict[str, Any]], failure: Failure) -> dict[str, Any]:
    """The object of an answer that the server could not complete."""
    code = "rate_limit_exceeded" if failure.status == 429 else "server_error"
    error = {"code": code, "message": failure.message}
    return begun | {"status": "failed", "error": error, "output": output}


def usage(run: Run) -> dict[str, Any]:
    """Token counts; the prefix cache fills by itself, so that nothing counts as written to it."""
    return {
        "input_tokens": run.prompt_tokens,
        "input_tokens_details": {"cached_tokens": run.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": run.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": run.reasoning_tokens},
        "total_tokens": run.prompt_tokens + run.completion_tokens,
    }


def _text(body: ResponseRequest) -> dict[str, Any]:
    if body.text is None or body.text.format is None:
        return {"format": {"type": "text"}}
    return {"format": body.text.format.model_dump(by_alias=True)}


def _choice(body: ResponseRequest) -> Any:
    choice = body.tool_choice
    if choice is None:
        return "auto"
    return choice if isinstance(choice, str) else choice.model_dump()


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    return tool | {"strict": bool(tool["strict"])}
