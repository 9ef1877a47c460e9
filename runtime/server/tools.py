"""Tools as every API takes them: their limits, the choice among them, and what `runtime.chat` is given."""

from __future__ import annotations

from typing import Any

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.server.chat_turn import ToolChoice

MAX_TOOLS = 1024
NAME_PATTERN = r"^[a-zA-Z0-9_.:-]{1,128}$"


def check_tools(names: list[str], choice: ToolChoice, path: str) -> None:
    """Raise `RequestError` for a name that two tools have and a choice that can not be met.

    `path` names the field of a tool's name, with `{}` where its number stands.
    """
    for number, name in enumerate(names):
        if name in names[:number]:
            raise RequestError(
                f"two tools have the name '{name}'; expected names of their own",
                parameter=path.format(number),
            )
    shown = ", ".join(names) or "none"
    if choice.kind == "named" and choice.name not in names:
        raise RequestError(
            f"tool_choice names '{choice.name}', which is not among the tools: {shown}",
            parameter="tool_choice.name",
        )
    if choice.kind == "required" and not names:
        raise RequestError(
            "tool_choice wants a call and there are no tools; give tools", parameter="tool_choice"
        )


def function_tool(
    name: str, description: str | None, parameters: dict[str, Any] | None, strict: bool | None
) -> dict[str, Any]:
    """A tool in OpenAI's shape, without what was not given."""
    function: dict[str, Any] = {"name": name}
    if description is not None:
        function["description"] = description
    if parameters is not None:
        function["parameters"] = parameters
    if strict:
        function["strict"] = True
    return {"type": "function", "function": function}
