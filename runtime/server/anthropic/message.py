"""An answer in Anthropic's words: the message, the blocks in it, why it ended, what it took."""

from __future__ import annotations

import json
from collections.abc import Iterable
from secrets import token_hex
from typing import Any, Literal, TypeAlias

from dsv4_trt.runtime.chat.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Event,
    Reasoning,
)
from dsv4_trt.runtime.server.sealed_text import seal, signature_of
from dsv4_trt.runtime.server.sse import Run

StopReason: TypeAlias = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
]


def message(model: str, content: list[dict[str, Any]], **rest: Any) -> dict[str, Any]:
    """The object around the blocks; `rest` is why it ended, and its usage."""
    return {
        "id": f"msg_{token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
    } | rest


def content_blocks(events: Iterable[Event], *, shows_thinking: bool) -> list[dict[str, Any]]:
    """The blocks that the parser's events fill, in order; none is empty."""
    made: list[dict[str, Any]] = []
    for event in events:
        match event:
            case Reasoning(text=text):
                _block(made, "thinking")["thinking"] += text
            case Content(text=text):
                _block(made, "text")["text"] += text
            case CallStart(name=name):
                made.append(tool_use(name) | {"input": ""})
            case CallArguments(text=text):
                made[-1]["input"] += text
            case CallEnd():
                pass
    return [_finished(block, shows_thinking) for block in made]


def tool_use(name: str) -> dict[str, Any]:
    """A call as it begins."""
    return {"type": "tool_use", "id": f"toolu_{token_hex(12)}", "name": name, "input": {}}


def thinking_signature(text: str, *, is_shown: bool) -> str:
    """What a thinking block ends with: where the text is not shown, all that brings it back."""
    return signature_of(text) if is_shown else seal(text)


def stop_fields(
    finish_reason: str, stop_reason: str | int | None, *, is_clipped: bool
) -> dict[str, Any]:
    """`stop_reason` and `stop_sequence` of an answer that the server did not end early.

    `is_clipped` says that the context, and not `max_tokens`, was the limit.
    """
    reason: StopReason = "end_turn"
    sequence = None
    if finish_reason == "length":
        reason = "model_context_window_exceeded" if is_clipped else "max_tokens"
    elif finish_reason == "tool_calls":
        reason = "tool_use"
    elif isinstance(stop_reason, str):
        reason, sequence = "stop_sequence", stop_reason
    return {"stop_reason": reason, "stop_sequence": sequence}


def usage(run: Run) -> dict[str, Any]:
    """Counts so far; what the prefix cache had is not in `input_tokens`.

    The cache fills by itself, so that nothing counts as written to it.
    """
    return {
        "input_tokens": run.prompt_tokens - run.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": run.cached_tokens,
        "output_tokens": run.completion_tokens,
        "output_tokens_details": {"thinking_tokens": run.reasoning_tokens},
    }


def _block(made: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The last block if it is of this type, else a new one."""
    if not made or made[-1]["type"] != kind:
        made.append({"type": kind, kind: ""})
    return made[-1]


def _finished(block: dict[str, Any], shows_thinking: bool) -> dict[str, Any]:
    if block["type"] == "thinking":
        text = block["thinking"]
        signature = thinking_signature(text, is_shown=shows_thinking)
        return block | {"thinking": text if shows_thinking else "", "signature": signature}
    if block["type"] == "tool_use":
        return block | {"input": _arguments(block["input"])}
    return block


def _arguments(text: str) -> dict[str, Any]:
    """The arguments; those of a call that was cut off under "arguments", as V4 writes what is no JSON."""
    try:
        found = json.loads(text)
    except ValueError:
        found = text
    return found if isinstance(found, dict) else {"arguments": found}
