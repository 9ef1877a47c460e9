"""What tools and the choice among them must be, in every API."""

from __future__ import annotations

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.server.chat_turn import ToolChoice


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
