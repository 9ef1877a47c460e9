"""Hostile schemas of tools: refused by name, in little time, whatever their references stand for."""

import time

import pytest

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.guided.tool_grammar import required_tools_tag
from dsv4_trt.runtime.guided.tool_schema import MAX_NESTING

SECONDS = 10.0  # a busy core; without bounds these take hours


def tag(*schemas):
    tools = [
        {"type": "function", "function": {"name": f"f{i}", "parameters": schema}}
        for i, schema in enumerate(schemas)
    ]
    return required_tools_tag(tools, dsml_token_id=5)


def doubling(depth):
    """A schema of a few lines that stands for 2 ** depth alternatives."""
    steps = {
        f"s{i}": {"anyOf": [{"$ref": f"#/$defs/s{i + 1}"}, {"$ref": f"#/$defs/s{i + 1}"}]}
        for i in range(depth)
    }
    last = {f"s{depth}": {"type": "string"}}
    return {"properties": {"a": {"$ref": "#/$defs/s0"}}, "$defs": steps | last}


def test_references_that_double_are_counted():
    assert tag(doubling(5))
    begun = time.perf_counter()
    with pytest.raises(RequestError, match="too large for a grammar") as found:
        tag(doubling(30))
    assert found.value.parameter == "tools"
    assert time.perf_counter() - begun < SECONDS


def test_copies_of_the_document_are_counted():
    inner = {"type": "object", "properties": {"r": {"$ref": "#/$defs/x"}}}
    many = {f"p{i}": {"$ref": "#/$defs/x"} for i in range(5000)}
    begun = time.perf_counter()
    with pytest.raises(RequestError, match="too large for a grammar"):
        tag({"properties": many, "$defs": {"x": inner}})
    assert time.perf_counter() - begun < SECONDS


def test_tools_of_a_request_are_counted_together():
    one = {"properties": {f"p{i}": {"enum": list(range(500))} for i in range(20)}}
    assert tag(one)
    with pytest.raises(RequestError, match="too large for a grammar"):
        tag(*[one] * 20)


@pytest.mark.parametrize("nested", ["items", "anyOf"])
def test_depth_is_bounded(nested):
    schema = {"type": "string"}
    for _ in range(2000):
        schema = {"items": schema} if nested == "items" else {"anyOf": [schema]}
    with pytest.raises(RequestError, match=f"nests more than {MAX_NESTING} deep"):
        tag({"properties": {"a": schema}})


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"properties": 5}, "#/properties"),
        ({"properties": [1]}, "#/properties"),
        ({"required": 5}, "#/required"),
        ({"required": [[]]}, "#/required"),
        ({"additionalProperties": 5}, "#/additionalProperties"),
        ({"$ref": 5}, r"#/\$ref"),
        ({"properties": {"a": 5}}, "#/properties/a"),
        ({"properties": {"a": {"enum": 5}}}, "#/properties/a/enum"),
        ({"properties": {"a": {"enum": []}}}, "#/properties/a/enum"),
        ({"properties": {"a": {"anyOf": {}}}}, "#/properties/a/anyOf"),
        ({"properties": {"a": {"oneOf": [[]]}}}, "#/properties/a/oneOf/0"),
        ({"properties": {"a": {"allOf": 5}}}, "#/properties/a/allOf"),
        ({"properties": {"a": {"allOf": [5]}}}, "#/properties/a/allOf/0"),
        ({"properties": {"a": {"type": "text"}}}, "#/properties/a/type"),
        ({"properties": {"a": {"type": [{}]}}}, "#/properties/a/type"),
        ({"properties": {"a": {"pattern": 5}}}, "#/properties/a/pattern"),
        ({"properties": {"a": {"maxLength": -1}}}, "#/properties/a/maxLength"),
        ({"properties": {"a": {"minLength": True}}}, "#/properties/a/minLength"),
        ({"properties": {"a": {"items": {"type": 5}}}}, "#/properties/a/items/type"),
    ],
)
def test_a_keyword_of_the_wrong_shape_is_named(schema, where):
    with pytest.raises(RequestError, match=f" at {where}; expected") as found:
        tag(schema)
    assert found.value.parameter == "tools"


def test_what_json_schema_allows_is_taken():
    schema = {
        "properties": {
            "any": True,
            "list": {"type": "array", "items": [{"type": "string"}]},
            "one": {"allOf": [True]},
            "type": {"type": ["string", "null"], "default": {"type": 5}},
        },
        "required": [],
    }
    assert tag(schema)
