"""Content blocks of a request, and which of Anthropic's a text model can read."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, Tag

from dsv4_trt.runtime.server.body import MAX_ITEMS, Body, JsonObject, by_field, refuse_unknown


class TextBlock(Body):
    """Text of any role."""

    type: Literal["text"]
    text: str


class ThinkingBlock(Body):
    """Reasoning that the assistant gave before; any signature is accepted."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(Body):
    """Reasoning of another server, which can not be read; accepted, and left out of the prompt."""

    type: Literal["redacted_thinking"]
    data: str


class ToolUseBlock(Body):
    """A call that the assistant made."""

    type: Literal["tool_use"]
    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    input: JsonObject


def _as_blocks(value: object) -> object:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


Text: TypeAlias = Annotated[TextBlock, refuse_unknown("a block", ("text",))]
Texts: TypeAlias = Annotated[
    list[Text],
    Field(max_length=MAX_ITEMS, fail_fast=True),
    BeforeValidator(_as_blocks, json_schema_input_type=str | list[Text]),
]


class ToolResultBlock(Body):
    """What a call brought."""

    type: Literal["tool_result"]
    tool_use_id: str = Field(min_length=1)
    content: Texts = Field(default_factory=list)
    is_error: bool = False


Block: TypeAlias = Annotated[
    Annotated[
        Annotated[TextBlock, Tag("text?")]
        | Annotated[ThinkingBlock, Tag("thinking?")]
        | Annotated[RedactedThinkingBlock, Tag("redacted_thinking?")]
        | Annotated[ToolUseBlock, Tag("tool_use?")]
        | Annotated[ToolResultBlock, Tag("tool_result?")],
        by_field(
            "type",
            text="text?",
            thinking="thinking?",
            redacted_thinking="redacted_thinking?",
            tool_use="tool_use?",
            tool_result="tool_result?",
        ),
    ],
    refuse_unknown("a block", ("text", "thinking", "redacted_thinking", "tool_use", "tool_result")),
]
Blocks: TypeAlias = Annotated[
    list[Block],
    Field(max_length=MAX_ITEMS, fail_fast=True),
    BeforeValidator(_as_blocks, json_schema_input_type=str | list[Block]),
]


class Message(Body):
    """One message of the conversation; a string is one text block."""

    role: Literal["user", "assistant", "system"]
    content: Blocks
