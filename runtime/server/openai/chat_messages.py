"""Messages of a chat request: their shapes in the API, and as `runtime.chat` takes them.

Parts of one text are joined by an empty line, as V4's format joins the blocks of a turn. `developer` is
OpenAI's newer word for `system`; V4's own developer role belongs to its search agent, not to clients.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, Tag
from pydantic_core import PydanticCustomError

from dsv4_trt.runtime.chat.markers import PARAGRAPH
from dsv4_trt.runtime.server.body import MAX_ITEMS, Body, by_field, by_kind


def _only_text(kind: object) -> object:
    if isinstance(kind, str) and kind != "text":
        raise PydanticCustomError(
            "part_type",
            "the part is of type {kind}; this model reads text parts only",
            {"kind": repr(kind)},
        )
    return kind


class TextPart(Body):
    """A piece of text; images, audio and files are refused."""

    type: Annotated[Literal["text"], BeforeValidator(_only_text)]
    text: str


Content: TypeAlias = Annotated[
    Annotated[str, Tag("string?")]
    | Annotated[list[TextPart], Field(max_length=MAX_ITEMS, fail_fast=True), Tag("array?")],
    by_kind("a text or a list of text parts"),
]


class CalledFunction(Body):
    """What was called, with the arguments as JSON text."""

    name: str
    arguments: str


class ToolCall(Body):
    """A call that the assistant made."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class SystemMessage(Body):
    """Instructions."""

    role: Literal["system", "developer"]
    content: Content

    def encoded(self) -> dict[str, Any]:
        """The message as `runtime.chat` takes it."""
        return {"role": "system", "content": joined(self.content)}


class UserMessage(Body):
    """What the user says; `latest_reminder` is V4's role for facts of the moment, such as the date."""

    role: Literal["user", "latest_reminder"]
    content: Content

    def encoded(self) -> dict[str, Any]:
        """The message as `runtime.chat` takes it."""
        return {"role": self.role, "content": joined(self.content)}


class AssistantMessage(Body):
    """What the model said; `prefix`, in the last message alone, asks it to go on from there."""

    role: Literal["assistant"]
    content: Content | None = None
    reasoning_content: str | None = None
    reasoning: str | None = Field(None, description="Another name of reasoning_content.")
    tool_calls: list[ToolCall] | None = None
    prefix: bool | None = None

    def encoded(self) -> dict[str, Any]:
        """The message as `runtime.chat` takes it; what is absent or empty stays out."""
        message: dict[str, Any] = {"role": self.role, "content": joined(self.content or "")}
        thought = self.reasoning if self.reasoning_content is None else self.reasoning_content
        if thought is not None:
            message["reasoning_content"] = thought
        if self.tool_calls:
            message["tool_calls"] = [call.model_dump() for call in self.tool_calls]
        return message


class ToolMessage(Body):
    """The result of a call."""

    role: Literal["tool"]
    tool_call_id: str
    content: Content

    def encoded(self) -> dict[str, Any]:
        """The message as `runtime.chat` takes it."""
        return {
            "role": self.role,
            "tool_call_id": self.tool_call_id,
            "content": joined(self.content),
        }


Message = Annotated[
    Annotated[SystemMessage, Tag("system?")]
    | Annotated[UserMessage, Tag("user?")]
    | Annotated[AssistantMessage, Tag("assistant?")]
    | Annotated[ToolMessage, Tag("tool?")],
    by_field(
        "role",
        system="system?",
        developer="system?",
        user="user?",
        latest_reminder="user?",
        assistant="assistant?",
        tool="tool?",
    ),
]


def joined(content: Content) -> str:
    """The text of a message."""
    if isinstance(content, str):
        return content
    return PARAGRAPH.join(part.text for part in content)
