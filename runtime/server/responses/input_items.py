"""Items of a request's input, and which of OpenAI's a text model with functions can read."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, Tag

from dsv4_trt.runtime.server.body import MAX_ITEMS, Body, by_field, refuse_unknown


class TextPart(Body):
    """A piece of text: of the client, of the model, or of a tool."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class RefusalPart(Body):
    """What another model wrote instead of an answer; text like any other here."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        """The text."""
        return self.refusal


_PARTS = ("input_text", "output_text", "text", "refusal")
Part: TypeAlias = Annotated[
    Annotated[
        Annotated[TextPart, Tag("text?")] | Annotated[RefusalPart, Tag("refusal?")],
        by_field("type", input_text="text?", output_text="text?", text="text?", refusal="refusal?"),
    ],
    refuse_unknown("a content part", _PARTS),
]


def _as_parts(value: object) -> object:
    return [{"type": "input_text", "text": value}] if isinstance(value, str) else value


Parts: TypeAlias = Annotated[
    list[Part],
    Field(max_length=MAX_ITEMS, fail_fast=True),
    BeforeValidator(_as_parts, json_schema_input_type=str | list[Part]),
]


class MessageItem(Body):
    """A message of any role; a string is one part."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Parts


class ReasoningText(Body):
    """A piece of reasoning, or of a summary of it."""

    type: Literal["reasoning_text", "summary_text", "text"]
    text: str


class ReasoningItem(Body):
    """What the model thought; of several spellings the most exact one counts."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: list[ReasoningText] = Field(default_factory=list)
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None


class CallItem(Body):
    """A call that the model made."""

    type: Literal["function_call"]
    id: str | None = None
    call_id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    arguments: str


class OutputItem(Body):
    """What a call brought."""

    type: Literal["function_call_output"]
    call_id: str = Field(min_length=1)
    output: Parts


class ReferenceItem(Body):
    """An item of a stored response, by its id."""

    type: Literal["item_reference"]
    id: str = Field(min_length=1)


_ITEMS = ("message", "reasoning", "function_call", "function_call_output", "item_reference")


def _is_message(value: object) -> object:
    """Messages and references may come without a type."""
    if isinstance(value, dict) and value.get("type") is None:
        return value | {"type": "message" if "role" in value else "item_reference"}
    return value


Item: TypeAlias = Annotated[
    Annotated[
        Annotated[MessageItem, Tag("message?")]
        | Annotated[ReasoningItem, Tag("reasoning?")]
        | Annotated[CallItem, Tag("call?")]
        | Annotated[OutputItem, Tag("output?")]
        | Annotated[ReferenceItem, Tag("reference?")],
        by_field(
            "type",
            message="message?",
            reasoning="reasoning?",
            function_call="call?",
            function_call_output="output?",
            item_reference="reference?",
        ),
    ],
    refuse_unknown("an item", _ITEMS),
    BeforeValidator(_is_message),
]


def _as_items(value: object) -> object:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


Items: TypeAlias = Annotated[
    list[Item],
    Field(max_length=MAX_ITEMS, fail_fast=True),
    BeforeValidator(_as_items, json_schema_input_type=str | list[Item]),
]
