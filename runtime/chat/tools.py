"""Tools and answer formats as requests give them, in OpenAI's form."""

from __future__ import annotations

from dataclasses import dataclass

from dsv4_trt.runtime.chat.fields import read, refuse, to_json


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call, and what the prompt says of it."""

    name: str
    schema: str  # JSON


def read_tools(given: object, path: str) -> list[Tool]:
    """Read a list of tools; None is an empty one. Raises `RequestError`."""
    items = [] if given is None else read(list, given, path)
    return [_read_tool(item, f"{path}[{i}]") for i, item in enumerate(items)]


def read_format(given: object, path: str) -> str | None:
    """Read a `response_format`, as JSON; raises `RequestError`."""
    return None if given is None else to_json(read(dict, given, path), path)


def _read_tool(given: object, path: str) -> Tool:
    tool = read(dict, given, path)
    kind = tool.get("type", "function")
    if kind != "function":
        refuse(f"{path}.type", kind, "'function'")
    function = read(dict, tool.get("function"), f"{path}.function")
    name = read(str, function.get("name"), f"{path}.function.name")
    if not name:
        refuse(f"{path}.function.name", name, "a name")
    return Tool(name, to_json(function, f"{path}.function"))
