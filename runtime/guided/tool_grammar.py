"""The grammar of an answer that must call a tool: V4's DSML block, as a structural tag.

The bars of a tag are the one token ｜DSML｜, which text can not spell; everything else is text. Arguments
come in the order in which the schema declares them, optional ones may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.chat.markers import KEY_END, NAME_END
from dsv4_trt.runtime.guided.tool_schema import Budget, Document
from dsv4_trt.runtime.guided.tool_values import Format, any_value, named, sequence, values, within

NAME = "[A-Za-z_][A-Za-z0-9_.-]*"  # of an argument that no schema declares


def required_tools_tag(
    tools: Sequence[Mapping[str, Any]],
    *,
    dsml_token_id: int,
    name: str | None = None,
    parallel: bool = True,
) -> dict[str, Any]:
    r"""The structural tag of an output that is one block of calls of the given OpenAI tools, then its end.

    `name` allows the one tool of that name only; `parallel` false allows one call only. The output
    begins with the block's leading "\n\n", so that it belongs after `</think>`. Raises `RequestError`
    for no tool, an unknown name, an argument whose name can not be written, and a schema that is none or
    stands for too much.
    """
    chosen = [tool["function"] for tool in tools]
    if not chosen:
        raise RequestError("a tool call is required and no tool is given", parameter="tools")
    if name is not None:
        chosen = [function for function in chosen if function["name"] == name]
        if not chosen:
            known = ", ".join(repr(tool["function"]["name"]) for tool in tools)
            raise RequestError(
                f"tool_choice names the tool {name!r}; expected one of {known}",
                parameter="tool_choice",
            )
    bar: Format = {"type": "token", "token": dsml_token_id}
    budget = Budget()
    calls = one_of([_call(function, bar, budget) for function in chosen])
    block = [
        *tag("\n\n<", bar, "tool_calls>\n"),
        {"type": "plus", "content": calls} if parallel else calls,
        *tag("</", bar, "tool_calls>"),
    ]
    return {"type": "structural_tag", "format": sequence(block)}


def tag(start: str, bar: Format, rest: str) -> list[Format]:
    """One tag: its text before and after the token."""
    return [text(start), bar, text(rest)]


def text(value: str) -> Format:
    """Just this text."""
    return {"type": "const_string", "value": value}


def one_of(formats: list[Format]) -> Format:
    """Any one of some formats."""
    return formats[0] if len(formats) == 1 else {"type": "or", "elements": formats}


def _call(function: Mapping[str, Any], bar: Format, budget: Budget) -> Format:
    opened = tag("<", bar, f'invoke name="{function["name"]}{NAME_END}')
    closed = tag("</", bar, "invoke>\n")
    schema = function.get("parameters")
    if schema is None:
        return sequence([*opened, text("\n"), *closed])
    return sequence([*opened, *_arguments(Document(schema, budget), bar), *closed])


def _arguments(root: Document, bar: Format) -> list[Format]:
    """One line for each argument; an empty line where there is none."""
    top = named(root.root, root)
    declared, rest = top.get("properties"), top.get("additionalProperties")
    if not declared and (rest if declared is not None else rest is not False):
        return [one_of([{"type": "plus", "content": _free(rest, root, bar)}, text("\n")])]
    required = top.get("required", ())
    every = {**(declared or {}), **{key: True for key in required if key not in (declared or {})}}
    lines = {key: _argument(key, value, root, bar) for key, value in every.items()}
    if required:
        return [line if key in required else _optional(line) for key, line in lines.items()]
    return [one_of([text("\n"), *([sequence([*map(_optional, lines.values())])] if lines else [])])]


def _optional(line: Format) -> Format:
    return {"type": "optional", "content": line}


def _argument(key: str, value: object, root: Document, bar: Format) -> Format:
    if KEY_END in key + KEY_END[:-1]:
        raise RequestError(
            f"a tool has the argument {key!r}; expected a name without {KEY_END!r}, which ends it in "
            "a call",
            parameter="tools",
        )
    return _line([text(key)], values(value, root), root, bar)


def _free(value: object, root: Document, bar: Format) -> Format:
    """An argument of any name."""
    found = any_value() if value is None or value is True else values(value, root)
    return _line([{"type": "regex", "pattern": NAME}], found, root, bar)


def _line(
    key: list[Format], found: list[tuple[bool, Format]], root: Document, bar: Format
) -> Format:
    """One argument; its value is raw text or JSON, as each of the `found` says."""
    lines = []
    for is_text, value in found:
        kind = f'" string="{str(is_text).lower()}">'
        opened = [*tag("<", bar, 'parameter name="'), *key, text(kind)]
        lines.append(sequence([*opened, within(value, root), *tag("</", bar, "parameter>\n")]))
    return one_of(lines)
