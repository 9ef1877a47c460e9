"""The body of a request: the fields that mean something here, and those that are refused by name."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field, Tag

from dsv4_trt.runtime.server.body import (
    Body,
    JsonObject,
    Unsupported,
    by_field,
    by_kind,
    refuse_unknown,
)
from dsv4_trt.runtime.server.chat_turn import AskedEffort
from dsv4_trt.runtime.server.responses.input_items import Items
from dsv4_trt.runtime.server.tools import MAX_TOOLS, NAME_PATTERN

REASONING_SEAL = "reasoning.encrypted_content"


class Tool(Body):
    """A function that the client runs."""

    type: Literal["function"]
    name: str = Field(pattern=NAME_PATTERN)
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class FunctionName(Body):
    """A function by its name."""

    type: Literal["function"]
    name: str


class AllowedTools(Body):
    """Only these tools, in this turn."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[FunctionName] = Field(min_length=1)


_ToolObject: TypeAlias = Annotated[
    Annotated[
        Annotated[FunctionName, Tag("function?")] | Annotated[AllowedTools, Tag("allowed_tools?")],
        by_field("type", function="function?", allowed_tools="allowed_tools?"),
    ],
    refuse_unknown("a tool choice", ("function", "allowed_tools")),
]
ToolChoice: TypeAlias = Annotated[
    Annotated[Literal["auto", "none", "required"], Tag("string?")]
    | Annotated[_ToolObject, Tag("object?")],
    by_kind("'auto', 'none', 'required' or an object"),
]


class Reasoning(Body):
    """How hard to think, and whether reasoning comes as a summary: then it is all of it."""

    effort: AskedEffort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class TextFormat(Body):
    """Anything."""

    type: Literal["text"]


class JsonObjectFormat(Body):
    """Any JSON object."""

    type: Literal["json_object"]


class JsonSchemaFormat(Body):
    """JSON that a schema describes; it is kept to whether `strict` or not."""

    type: Literal["json_schema"]
    name: str
    description: str | None = None
    schema_: JsonObject = Field(alias="schema")
    strict: bool | None = None


Format: TypeAlias = Annotated[
    Annotated[TextFormat, Tag("text?")]
    | Annotated[JsonObjectFormat, Tag("json_object?")]
    | Annotated[JsonSchemaFormat, Tag("json_schema?")],
    by_field("type", text="text?", json_object="json_object?", json_schema="json_schema?"),
]


class TextConfig(Body):
    """What the text looks like; verbosity is accepted, V4 knows no such control."""

    format: Format | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ResponseRequest(Body):
    """`POST /v1/responses`."""

    unsupported: ClassVar = {
        "background": Unsupported("wait for the response, or stream it", (False,)),
        "conversation": Unsupported("give previous_response_id, or all items as input"),
        "context_management": Unsupported("send a shorter input", ([],)),
        "moderation": Unsupported("moderate what comes back"),
        "prompt": Unsupported("give instructions and input"),
        "truncation": Unsupported("send a shorter input", ("disabled",)),
        "top_logprobs": Unsupported("/v1/chat/completions gives logprobs", (0,)),
    }

    model: str | None = Field(None, description="The served model's name; absent = that one.")
    input: Items = Field(min_length=1)
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = Field(None, description="Keep the response, in memory; on by default.")
    tools: list[Annotated[Tool, refuse_unknown("a tool", ("function",))]] | None = Field(
        None, max_length=MAX_TOOLS
    )
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    include: list[str] | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    stream: bool | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None

    @property
    def is_stored(self) -> bool:
        """Whether the response is kept."""
        return self.store is not False

    @property
    def seals_reasoning(self) -> bool:
        """Whether reasoning items also carry their text as an opaque string."""
        return REASONING_SEAL in (self.include or ())

    @property
    def shows_summary(self) -> bool:
        """Whether reasoning comes as a summary."""
        return self.reasoning is not None and self.reasoning.summary is not None
