"""What the value of a tool's argument may be: raw text where its schema says string, else JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.guided.tool_schema import Document, size_of

Format: TypeAlias = dict[str, Any]
Value: TypeAlias = tuple[bool, Format]  # whether it is raw text, and its format
NOT_TEXT = ["number", "boolean", "null", "array", "object"]
MAX_DEPTH = 32  # of references and alternatives one within the other
ROOT = "#/$defs/root"


def values(schema: object, root: Document, depth: int = 0) -> list[Value]:
    """What a schema allows, raw texts apart from JSON; `root` is the document of its references."""
    root.spend(1)
    if depth > MAX_DEPTH:
        raise RequestError(
            f"a tool's schema nests references and alternatives {MAX_DEPTH} deep without a value",
            parameter="tools",
        )
    if not isinstance(schema, Mapping) or not schema:
        return any_value()
    schema = named(schema, root)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return _unique([v for each in schema[key] for v in values(each, root, depth + 1)])
    if len(schema.get("allOf", ())) == 1:
        inner = schema["allOf"][0]
        inner = inner if isinstance(inner, Mapping) else {}
        return values({**schema, **inner, "allOf": []}, root, depth + 1)
    if "const" in schema:
        return _constants([schema["const"]])
    if "enum" in schema:
        root.spend(len(schema["enum"]))
        return _constants(schema["enum"])
    return _typed(schema)


def any_value() -> list[Value]:
    """Any text, and any JSON that is no string."""
    return [(True, _text({})), (False, _json({"type": NOT_TEXT}))]


def named(schema: Mapping[str, Any], root: Document) -> Mapping[str, Any]:
    """What a reference stands for; another schema stays as it is."""
    for _ in range(MAX_DEPTH):
        if "$ref" not in schema:
            return schema
        found: Any = root.root
        for part in str(schema["$ref"]).removeprefix("#").split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            found = found.get(part) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            break
        schema = found
    raise RequestError(
        f"a tool's schema has the reference {schema['$ref']!r}; expected one that leads to a schema "
        "of the same document",
        parameter="tools",
    )


def sequence(elements: list[Format]) -> Format:
    """Formats one behind the other."""
    return {"type": "sequence", "elements": elements}


def within(value: Format, root: Document) -> Format:
    """A format whose schema finds what its references lead to."""
    schema = value.get("json_schema")
    root.spend(size_of(schema))
    if not isinstance(schema, Mapping) or not _has_reference(schema):
        return value
    root.spend(root.size)
    moved = {**_moved(schema), "$defs": {"root": _moved(root.root)}}
    return {**value, "json_schema": moved}


def _typed(schema: Mapping[str, Any]) -> list[Value]:
    kinds = schema.get("type")
    if kinds is None:
        return [(True, _text(schema)), (False, _json({**schema, "type": NOT_TEXT}))]
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    if schema.get("nullable") is True:
        kinds.append("null")
    others = [kind for kind in kinds if kind != "string"]
    found: list[Value] = [(True, _text(schema))] if "string" in kinds else []
    if others:
        found.append((False, _json({**schema, "type": others if others[1:] else others[0]})))
    return found


def _constants(given: list[Any]) -> list[Value]:
    texts = [c for c in given if isinstance(c, str)]
    rest = [c for c in given if not isinstance(c, str)]
    found: list[Value] = [(True, {"type": "const_string", "value": c}) for c in texts]
    return found + ([(False, _json({"enum": rest}))] if rest else [])


def _text(schema: Mapping[str, Any]) -> Format:
    """Raw text: it may hold anything but marker tokens."""
    if "pattern" in schema:
        return {"type": "regex", "pattern": schema["pattern"]}
    low, high = schema.get("minLength", 0), schema.get("maxLength", "")
    count = "*" if (low, high) == (0, "") else f"{{{low},{high}}}"
    return {"type": "grammar", "grammar": rf"root ::= [\0-\U0010ffff]{count}"}


def _json(schema: Mapping[str, Any]) -> Format:
    return {"type": "json_schema", "json_schema": _without_lengths(schema)}


def _without_lengths(schema: Any) -> Any:
    """A schema whose strings have any length: xgrammar has no escapes in those that have one."""
    if isinstance(schema, list):
        return [_without_lengths(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: value if key in ("const", "enum") else _without_lengths(value)
        for key, value in schema.items()
        if key not in ("minLength", "maxLength") or isinstance(value, Mapping)
    }


def _unique(found: list[Value]) -> list[Value]:
    return list({json.dumps(value): value for value in found}.values())


def _has_reference(schema: object) -> bool:
    if isinstance(schema, Mapping):
        return "$ref" in schema or any(map(_has_reference, schema.values()))
    return isinstance(schema, list) and any(map(_has_reference, schema))


def _moved(schema: Any) -> Any:
    """A schema whose references start at where its document is put."""
    if isinstance(schema, list):
        return [_moved(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    moved = {key: _moved(value) for key, value in schema.items()}
    if isinstance(schema.get("$ref"), str):
        moved["$ref"] = ROOT + schema["$ref"].removeprefix("#")
    return moved
