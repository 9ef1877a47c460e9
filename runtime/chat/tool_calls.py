"""Tool calls of earlier answers, written as the model writes them.

DSML has no escapes. A marker spelled in a value is harmless, as it is text and not the marker's token;
names that the text around them could not be told from are refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dsv4_trt.runtime.chat.fields import read, read_optional, refuse
from dsv4_trt.runtime.chat.markers import KEY_END, NAME_END
from dsv4_trt.runtime.chat.prompt_texts import to_json
from dsv4_trt.runtime.chat.segments import Segment, template
from dsv4_trt.runtime.text.tokenizer import check_unicode

_DECODER = json.JSONDecoder()
_OPEN, _CLOSE = template("\n\n<｜DSML｜tool_calls>\n"), template("\n</｜DSML｜tool_calls>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument: a text as it is, or JSON."""

    name: str
    value: str
    is_text: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of an earlier answer; `id` is what its result names."""

    id: str | None
    name: str
    parameters: list[Parameter]


def read_calls(given: object, path: str) -> list[ToolCall]:
    """Read a message's `tool_calls`; raises `RequestError`."""
    if given is None:
        return []
    return [_read_call(call, f"{path}[{i}]") for i, call in enumerate(read(list, given, path))]


def calls_text(calls: Sequence[ToolCall]) -> list[Segment]:
    """The block of these calls, with the empty line before it."""
    segments = list(_OPEN)
    for i, call in enumerate(calls):
        segments += (
            template("<｜DSML｜invoke name=") if i == 0 else template("\n<｜DSML｜invoke name=")
        )
        segments.append(Segment(f'"{call.name}">\n', is_markup=False))
        for j, parameter in enumerate(call.parameters):
            segments += template("\n<｜DSML｜parameter " if j else "<｜DSML｜parameter ")
            head = f'name="{parameter.name}" string="{to_json(parameter.is_text)}">'
            segments.append(Segment(head + parameter.value, is_markup=False))
            segments += template("</｜DSML｜parameter>")
        segments += template("\n</｜DSML｜invoke>")
    return [*segments, *_CLOSE]


def _read_call(given: object, path: str) -> ToolCall:
    call = read(dict, given, path)
    function = read(dict, call.get("function"), f"{path}.function")
    name = read(str, function.get("name"), f"{path}.function.name")
    if not name or NAME_END in f'{name}">':
        refuse(
            f"{path}.function.name", name, "a name without a quote and a bracket before a line end"
        )
    arguments_path = f"{path}.function.arguments"
    parameters = _read_arguments(function.get("arguments"), arguments_path)
    for parameter in parameters:
        if KEY_END in parameter.name + KEY_END[:-1]:
            refuse(arguments_path, parameter.name, f"names of parameters without {KEY_END!r}")
        check_unicode(parameter.name + parameter.value, arguments_path)
    return ToolCall(id=read_optional(str, call, "id", path), name=name, parameters=parameters)


def _read_arguments(given: object, path: str) -> list[Parameter]:
    """A JSON object becomes a parameter per member; any other text, or an object, a single one."""
    if isinstance(given, dict):
        return [Parameter(name="arguments", value=to_json(given), is_text=False)]
    text = read(str, given, path)
    spelled = _as_spelled(text)
    if spelled is not None:
        return spelled
    try:
        members = json.loads(text)
    except RecursionError:
        refuse(path, text, "JSON that is not nested as deep")
    except ValueError:
        members = None
    if not isinstance(members, dict):
        return [Parameter(name="arguments", value=text, is_text=True)]
    return [_parameter(name, value, to_json(value)) for name, value in members.items()]


def _parameter(name: str, value: Any, spelling: str) -> Parameter:
    is_text = isinstance(value, str)
    return Parameter(name=name, value=value if is_text else spelling, is_text=is_text)


def _as_spelled(text: str) -> list[Parameter] | None:
    """The members of an object laid out as our parsers do, each value in its own spelling.

    So that what the model wrote, `1e3` or `[1,2]`, is what it reads again. None for any other text.
    """
    found: dict[str, Parameter] = {}
    at = 1
    try:
        while text[at : at + 1] == '"' and text[:1] == "{":
            name, end = _DECODER.raw_decode(text, at)
            value, stop = _DECODER.raw_decode(text, end + 2)
            spelling = text[end + 2 : stop]
            if text[at : end + 2] != f"{to_json(name)}: " or name in found:
                return None
            if isinstance(value, str) and spelling != to_json(value):
                return None
            found[name] = _parameter(name, value, spelling)
            if text[stop:] == "}":
                return list(found.values())
            if text[stop : stop + 2] != ", ":
                return None
            at = stop + 2
    except (ValueError, RecursionError):
        pass
    return None
