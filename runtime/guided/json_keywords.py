"""Which JSON Schema keywords a grammar can hold a model to; the others are refused, never ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsv4_trt.errors import RequestError

UNSUPPORTED = (
    "$dynamicRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "then",
)
ALTERNATIVES = ("$ref", "anyOf", "oneOf", "allOf")  # beside which nothing else is looked at
CONSTRAINTS = {
    "additionalProperties",
    "const",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "type",
    *ALTERNATIVES,
}
MAPS = ("properties", "patternProperties", "$defs", "definitions")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
SINGLE = ("items", "additionalProperties", "propertyNames", "additionalItems")


def check_keywords(schema: object, where: str = "#") -> None:
    """Raise `RequestError` for the first keyword, or pair of them, that would not be enforced."""
    if not isinstance(schema, Mapping):
        return
    found = _unenforced(schema)
    if found is not None:
        raise RequestError(
            f"guided_decoding.json has {found} at {where}, which no grammar here enforces; "
            "describe the values without it",
            parameter="guided_decoding.json",
        )
    for place, inner in inner_schemas(schema):
        check_keywords(inner, f"{where}/{place}")


def _unenforced(schema: Mapping[str, Any]) -> str | None:
    for keyword in UNSUPPORTED:
        if keyword in schema:
            return f"'{keyword}'"
    if schema.get("uniqueItems") is True:
        return "'uniqueItems'"
    if isinstance(schema.get("allOf"), list) and len(schema["allOf"]) > 1:
        return "'allOf' with more than one schema"
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference != "#" and not reference.startswith("#/"):
        return f"the reference {reference!r} out of this document"
    for keyword in ALTERNATIVES:
        beside = sorted(CONSTRAINTS & schema.keys() - {keyword})
        if keyword in schema and beside:
            return f"'{keyword}' beside '{beside[0]}'"
    lengths = {"minLength", "maxLength"} & schema.keys()
    for keyword in ("pattern", "format"):
        if keyword in schema and lengths:
            return f"'{keyword}' beside '{min(lengths)}'"
    return None


def inner_schemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas directly in a schema, each with its place."""
    for keyword in MAPS:
        if isinstance(schema.get(keyword), Mapping):
            yield from ((f"{keyword}/{name}", value) for name, value in schema[keyword].items())
    for keyword in LISTS:
        if isinstance(schema.get(keyword), list):
            yield from ((f"{keyword}/{i}", value) for i, value in enumerate(schema[keyword]))
    single = ((keyword, schema[keyword]) for keyword in SINGLE if keyword in schema)
    yield from ((keyword, value) for keyword, value in single if not isinstance(value, list))
