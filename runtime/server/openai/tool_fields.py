"""Tools a model may call, and whether it must."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.server.body import Body, JsonObject, by_field, by_kind
from dsv4_trt.runtime.server.chat_turn import ToolChoice
from dsv4_trt.runtime.server.tools import MAX_TOOLS, NAME_PATTERN, check_tools

NAME_PATH = "tools[{}].function.name"


def _only_function(kind: object) -> object:
    if isinstance(kind, str) and kind != "function":
        raise PydanticCustomError(
            "tool_type",
            "the tool is of type {kind}; only functions can be called",
            {"kind": repr(kind)},
        )
    return kind


FunctionType: TypeAlias = Annotated[Literal["function"], BeforeValidator(_only_function)]


class Function(Body):
    """A function; the prompt shows it with the keys, and in the order, that the client gave."""

    name: str = Field(pattern=NAME_PATTERN)
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None
    _given: dict[str, Any] = PrivateAttr()

    @model_validator(mode="wrap")
    @classmethod
    def _keep_given(cls, data: Any, handler: ModelWrapValidatorHandler[Function]) -> Function:
        function = handler(data)
        function._given = data
        return function


class Tool(Body):
    """A tool in OpenAI's shape."""

    type: FunctionType
    function: Function

    def encoded(self) -> dict[str, Any]:
        """The tool as `runtime.chat` takes it."""
        return {"type": "function", "function": self.function._given}


class FunctionName(Body):
    """A function by its name."""

    name: str


class NamedTool(Body):
    """The one tool that has to be called."""

    type: Literal["function"]
    function: FunctionName


class AllowedTools(Body):
    """A part of the tools, and whether one of it has to be called."""

    mode: Literal["auto", "required"]
    tools: list[NamedTool] = Field(min_length=1)


class AllowedToolsChoice(Body):
    """OpenAI's way to narrow the tools for one turn."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ChoiceObject = Annotated[
    Annotated[NamedTool, Tag("function?")] | Annotated[AllowedToolsChoice, Tag("allowed_tools?")],
    by_field("type", function="function?", allowed_tools="allowed_tools?"),
]
Choice = Annotated[
    Annotated[Literal["auto", "none", "required"], Tag("string?")]
    | Annotated[ChoiceObject, Tag("object?")],
    by_kind("'auto', 'none', 'required' or an object that names tools"),
]


class ToolFields(Body):
    """Tools of a request."""

    tools: list[Tool] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None

    def chosen_tools(self) -> tuple[list[dict[str, Any]], ToolChoice]:
        """The tools that may be called, and the choice among them.

        Of `allowed_tools` the model is shown those alone. Raises `RequestError` for a name that no tool
        has or two have, and for a choice without tools.
        """
        tools = {tool.function.name: tool.encoded() for tool in self.tools or []}
        choice = self._choice()
        if isinstance(self.tool_choice, NamedTool):
            _check_known(self.tool_choice, tools, "tool_choice.function.name")
        check_tools([tool.function.name for tool in self.tools or []], choice, NAME_PATH)
        if isinstance(self.tool_choice, AllowedToolsChoice):
            allowed = self.tool_choice.allowed_tools.tools
            for i, tool in enumerate(allowed):
                where = f"tool_choice.allowed_tools.tools[{i}].function.name"
                _check_known(tool, tools, where)
            tools = {tool.function.name: tools[tool.function.name] for tool in allowed}
        return list(tools.values()), choice

    def _choice(self) -> ToolChoice:
        match self.tool_choice:
            case NamedTool(function=FunctionName(name=name)):
                return ToolChoice(kind="named", name=name)
            case AllowedToolsChoice(allowed_tools=allowed):
                return ToolChoice(kind=allowed.mode)
            case kind:
                return ToolChoice(kind=kind or "auto")


def _check_known(chosen: NamedTool, tools: dict[str, Any], parameter: str) -> None:
    name = chosen.function.name
    if name not in tools:
        raise RequestError(
            f"{parameter} is {name!r}, which is not among the tools: {', '.join(tools) or 'none'}",
            parameter=parameter,
        )
