"""Tool calls of earlier answers, written as the model writes them.

DSML has no escapes. A marker spelled in a value is harmless, as it is text and not the marker's token;
names that the text around them could not be told from are refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.chat.fields import read, read_optional, refuse, to_json
from dsv4_trt.runtime.chat.markers import KEY_END, NAME_END
from dsv4_trt.runtime.chat.segments import Segment, template
from dsv4_trt.runtime.text.surrogates import check_unicode

_DECODER = json.JSONDecoder(parse_int=lambda digits: None)  # however many: only their place counts
_OPEN, _CLOSE = template("\n\n<｜DSML｜tool_calls>"), template("\n</｜DSML｜tool_calls>")
_CALL_OPEN, _CALL_CLOSE = template("\n<｜DSML｜invoke"), template("\n</｜DSML｜invoke>")
_PARAMETER_OPEN = template("\n<｜DSML｜parameter")
_PARAMETER_CLOSE = template("</｜DSML｜parameter>")


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
    for call in calls:
        segments += [*_CALL_OPEN, _text(f' name="{call.name}">')]
        for name, value, is_text in ((p.name, p.value, p.is_text) for p in call.parameters):
            flag = "true" if is_text else "false"
            segments += [*_PARAMETER_OPEN, _text(f' name="{name}" string="{flag}">{value}')]
            segments += _PARAMETER_CLOSE
        segments += _CALL_CLOSE if call.parameters else [_text("\n"), *_CALL_CLOSE]
    return [*segments, *_CLOSE]


def _text(text: str) -> Segment:
    return Segment(text, is_markup=False)


def _read_call(given: object, path: str) -> ToolCall:
    call = read(dict, given, path)
    function = read(dict, call.get("function"), f"{path}.function")
    name = read(str, function.get("name"), f"{path}.function.name")
    if not name or NAME_END in name:
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
        return [Parameter(name="arguments", value=to_json(given, path), is_text=False)]
    text = read(str, given, path)
    spelled = _as_spelled(text)
    if spelled is not None:
        return spelled
    try:
        members = json.loads(text)
    except json.JSONDecodeError:
        members = None
    except (ValueError, RecursionError) as error:
        raise RequestError(
            f"{path} can not be read: {error}; expected JSON of less depth and shorter numbers",
            parameter=path,
        ) from error
    if not isinstance(members, dict):
        return [Parameter(name="arguments", value=text, is_text=True)]
    return [
        Parameter(name=name, value=value, is_text=True)
        if isinstance(value, str)
        else Parameter(name=name, value=to_json(value, path), is_text=False)
        for name, value in members.items()
    ]


def _as_spelled(text: str) -> list[Parameter] | None:
    """The members of an object laid out as our parsers do, each value in its own spelling.

    So what the model wrote, `1e3` or `[1,2]`, is what it reads again. None for any other text, and where
    a value has `\\u`, which clients write more often than the model.
    """
    if not text.startswith("{"):
        return None
    found: dict[str, Parameter] = {}
    at = 1
    try:
        while text.startswith('"', at):
            name, end = _DECODER.raw_decode(text, at)
            if not text.startswith(": ", end) or name in found:
                return None
            value, stop = _DECODER.raw_decode(text, end + 2)
            is_text = isinstance(value, str)
            spelling = value if is_text else text[end + 2 : stop]
            if not is_text and "\\u" in spelling:
                return None
            found[name] = Parameter(name=name, value=spelling, is_text=is_text)
            if stop == len(text) - 1 and text[stop] == "}":
                return list(found.values())
            if not text.startswith(", ", stop):
                return None
            at = stop + 2
    except (ValueError, RecursionError):
        pass
    return None
