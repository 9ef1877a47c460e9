"""Bodies of requests: the fields that mean something here. All others are ignored, as the API grows."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field, Tag

from dsv4_trt.runtime.server.anthropic.blocks import Message, Texts
from dsv4_trt.runtime.server.body import (
    MAX_ITEMS,
    MAX_STOPS,
    Body,
    JsonObject,
    Unsupported,
    by_field,
    refuse_unknown,
)
from dsv4_trt.runtime.server.tools import MAX_TOOLS, NAME_PATTERN


class ThinkingEnabled(Body):
    """Think; the budget is accepted and does not bind, as in DeepSeek's own API."""

    type: Literal["enabled"]
    budget_tokens: int | None = Field(default=None, ge=1)
    display: Literal["summarized", "omitted"] | None = None


class ThinkingAdaptive(Body):
    """Think as long as the model wants."""

    type: Literal["adaptive"]
    display: Literal["summarized", "omitted"] | None = None


class ThinkingDisabled(Body):
    """Answer at once."""

    type: Literal["disabled"]


Thinking: TypeAlias = Annotated[
    Annotated[ThinkingEnabled, Tag("enabled?")]
    | Annotated[ThinkingAdaptive, Tag("adaptive?")]
    | Annotated[ThinkingDisabled, Tag("disabled?")],
    by_field("type", enabled="enabled?", adaptive="adaptive?", disabled="disabled?"),
]


class OutputFormat(Body):
    """A JSON schema that the text of the answer follows."""

    type: Literal["json_schema"]
    schema_: JsonObject = Field(alias="schema")


class OutputConfig(Body):
    """Effort and format."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class Tool(Body):
    """A tool that the client runs."""

    type: Literal["custom"] | None = None
    name: str = Field(pattern=NAME_PATTERN)
    description: str | None = None
    input_schema: JsonObject
    strict: bool | None = None


class AnyChoice(Body):
    """Whether to call: as the model likes ("auto"), or at least once ("any")."""

    type: Literal["auto", "any"]
    disable_parallel_tool_use: bool = False


class ToolChoice(Body):
    """Call this tool."""

    type: Literal["tool"]
    name: str = Field(min_length=1)
    disable_parallel_tool_use: bool = False


class NoChoice(Body):
    """Call none."""

    type: Literal["none"]


Choice: TypeAlias = Annotated[
    Annotated[AnyChoice, Tag("any?")]
    | Annotated[ToolChoice, Tag("tool?")]
    | Annotated[NoChoice, Tag("none?")],
    by_field("type", auto="any?", any="any?", tool="tool?", none="none?"),
]


class Prompt(Body):
    """What both routes read: everything that decides the prompt."""

    unsupported: ClassVar = {
        "mcp_servers": Unsupported("let the client call the tools of such servers", ([],)),
        "container": Unsupported("no code runs here"),
        "output_format": Unsupported("give output_config.format"),
    }

    model: str
    messages: list[Message] = Field(min_length=1, max_length=MAX_ITEMS, fail_fast=True)
    system: Texts = Field(default_factory=list)
    tools: list[Annotated[Tool, refuse_unknown("a tool", ("custom",))]] = Field(
        default_factory=list, max_length=MAX_TOOLS
    )
    tool_choice: Choice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None


class CountTokensRequest(Prompt):
    """Body of `/v1/messages/count_tokens`."""


class MessagesRequest(Prompt):
    """Body of `/v1/messages`."""

    max_tokens: int = Field(ge=1)
    stream: bool = False
    stop_sequences: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list, max_length=MAX_STOPS
    )
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
