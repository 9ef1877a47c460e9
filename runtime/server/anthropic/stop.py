"""Why an answer ended, in Anthropic's words."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

StopReason: TypeAlias = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
]


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
