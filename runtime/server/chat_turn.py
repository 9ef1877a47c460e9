"""One chat request as every API means it, whatever its own spelling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams

Effort: TypeAlias = Literal["high", "max"]  # V4's
AskedEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """Whether tools may be called, must be, or one of them must be."""

    kind: Literal["auto", "none", "required", "named"] = "auto"
    name: str | None = None  # of the tool, where the kind is "named"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTurn:
    """Messages in, and how to answer them.

    `messages` and `tools` are as `runtime.chat` takes them, in OpenAI's shape. `sampling` holds fields of
    `SamplingParams` under their names, but for `max_tokens` and `guided_decoding`.
    """

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    parallel_tool_calls: bool = True
    thinking: bool = True
    effort: Effort | None = None
    continue_final: bool = False  # the last message is the assistant's, and goes on
    response_format: dict[str, Any] | None = None  # as the prompt states it
    guided: GuidedDecodingParams | None = None  # for the answer's text, which begins after thinking
    sampling: dict[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None  # None = all that max_seq_len leaves
    priority: float = 0.5
    cache_salt: str = ""


def v4_effort(asked: AskedEffort | None) -> Effort | None:
    """V4 knows two efforts, all up to "high" are the first; None where nothing, or none, is asked for."""
    if asked is None or asked == "none":
        return None
    return "max" if asked in ("xhigh", "max") else "high"
