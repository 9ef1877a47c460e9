"""The schema of a tool's arguments: of the right shape, and bounded in what a grammar makes of it.

A few lines of references that lead to each other twice stand for billions of alternatives, so what is made
is counted, for all tools of a request together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.guided.json_keywords import inner_schemas
from dsv4_trt.runtime.guided.nesting import nests_deeper

MAX_NESTING = 64  # of JSON values one within the other
MAX_PARTS = 50_000  # values that a grammar is made of, copies included
_TYPES = {"string", "number", "integer", "boolean", "null", "array", "object"}


@dataclass(slots=True)
class Budget:
    """How much may still be made; shared by the tools of a request."""

    left: int = MAX_PARTS

    def spend(self, parts: int) -> None:
        """Raise `RequestError` for more than there is."""
        self.left -= parts
        if self.left < 0:
            raise RequestError(
                "the tools' schemas are too large for a grammar, with all that their references and "
                "alternatives stand for; expected fewer of them, or tool_choice 'auto'",
                parameter="tools",
            )


class Document:
    """A checked schema, in which references of its parts lead to other parts."""

    def __init__(self, schema: Mapping[str, Any], budget: Budget) -> None:
        """Raise `RequestError` for a schema that is none, or nests too deep."""
        if nests_deeper(schema, MAX_NESTING):
            raise RequestError(
                f"a tool's schema nests more than {MAX_NESTING} deep; write it flatter",
                parameter="tools",
            )
        budget.spend(1)
        check_shape(schema)
        self.root = schema
        self.spend = budget.spend

    @cached_property
    def size(self) -> int:
        """Values in the schema, those inside others included."""
        return size_of(self.root)


def size_of(value: object) -> int:
    """Number of JSON values in a value, itself included."""
    count, left = 0, [value]
    while left:
        found = left.pop()
        count += 1
        if isinstance(found, Mapping):
            left += found.values()
        elif isinstance(found, list):
            left += found
    return count


def check_shape(schema: object) -> None:
    """Raise `RequestError` for the first keyword whose value is not what JSON Schema has there."""
    left: list[tuple[str, object]] = [("#", schema)]
    while left:
        where, found = left.pop()
        if isinstance(found, bool):
            continue
        if not isinstance(found, Mapping):
            raise _refusal(where, found, "a schema, which is an object or true or false")
        for keyword, (is_legal, expected) in _KEYWORDS.items():
            if keyword in found and not is_legal(found[keyword]):
                raise _refusal(f"{where}/{keyword}", found[keyword], expected)
        left += ((f"{where}/{place}", inner) for place, inner in inner_schemas(found))


def _refusal(where: str, found: object, expected: str) -> RequestError:
    shown = repr(found)[:80]
    return RequestError(
        f"a tool's schema has {shown} at {where}; expected {expected}", parameter="tools"
    )


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_type(value: object) -> bool:
    kinds = value if isinstance(value, list) else [value]
    return bool(kinds) and all(isinstance(kind, str) and kind in _TYPES for kind in kinds)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _is_map(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_list(value: object) -> bool:
    return isinstance(value, list) and bool(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


Check = tuple[Callable[[object], bool], str]
_MAP: Check = (_is_map, "an object of schemas")
_LIST: Check = (_is_list, "a list that is not empty")
_COUNT: Check = (_is_count, "a whole number from 0")
_TEXT: Check = (_is_text, "a text")
_KEYWORDS: dict[str, Check] = {
    "$ref": _TEXT,
    "$defs": _MAP,
    "definitions": _MAP,
    "properties": _MAP,
    "patternProperties": _MAP,
    "required": (_is_names, "a list of names"),
    "anyOf": _LIST,
    "oneOf": _LIST,
    "allOf": _LIST,
    "enum": _LIST,
    "type": (_is_type, f"one of {', '.join(sorted(_TYPES))}, or a list of them"),
    "pattern": _TEXT,
    "minLength": _COUNT,
    "maxLength": _COUNT,
}
