"""Required tool calls: what the grammar makes the parsers of V4's format read, arguments by schema."""

import json
from contextlib import suppress

import pytest

from dsv4_trt.errors import CompletionError, RequestError
from dsv4_trt.runtime.chat.events import CallArguments, CallEnd, CallStart
from dsv4_trt.runtime.chat.parse import parse_completion
from dsv4_trt.runtime.chat.stream_parser import StreamParser
from dsv4_trt.runtime.guided.tool_grammar import required_tools_tag
from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams
from tests.runtime.guided.walks import (
    DSML,
    END_THINK,
    EOS,
    SIZE,
    allowed_ids,
    check_json,
    params,
    walk,
)

LOOKUP = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer", "minimum": 1, "maximum": 20},
        "kind": {"enum": ["a", "</b>", 3]},
        "code": {"type": "string", "pattern": "^[a-z]{2}$"},
        "short": {"type": "string", "maxLength": 3},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "both": {"type": ["string", "boolean"]},
        "list": {"$ref": "#/$defs/flags"},
        "same": {"$ref": "#/properties/count"},
        "inner": {
            "type": "object",
            "properties": {"flags": {"$ref": "#/$defs/flags"}},
            "required": ["flags"],
        },
    },
    "required": ["text", "list"],
    "$defs": {"flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}},
}
OPTIONAL = {"type": "object", "properties": {"x": {"type": "number"}, "y": {"const": "z"}}}


def tool(name, **schema):
    return {"type": "function", "function": {"name": name, **schema}}


TOOLS = [
    tool("lookup", parameters=LOOKUP),
    tool("optional", parameters=OPTIONAL),
    tool("nothing"),
    tool("empty", parameters={"type": "object", "properties": {}}),
]
BY_NAME = {each["function"]["name"]: each["function"].get("parameters") for each in TOOLS}
HURRY = (b"</", b'"', b"}", b"]")


def calls_of(compiler, small, seed, tools=TOOLS, **options):
    """Calls of one output, as both parsers read them; it is checked to be markup where it should."""
    tag = required_tools_tag(tools, dsml_token_id=DSML, **options)
    guided = GuidedDecodingParams(structural_tag=tag)
    vocabulary = {small.token_bytes(i): i for i in range(SIZE)}
    hurry = [DSML, *(vocabulary[piece] for piece in HURRY)]
    ids = walk(compiler.compile(guided), guided, seed, hurry=hurry)
    assert ids[-1] == EOS
    text = small.decode(ids)
    message = parse_completion(text, tools=tools)
    assert message["content"] == message["reasoning_content"] == ""
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message["tool_calls"]]
    assert streamed(small, ids) == calls
    assert calls
    return calls


def streamed(small, ids):
    """The same by the streaming parser, one token at a time, with the places of marker tokens."""
    parser, at, events = StreamParser(thinking=False), 0, []
    for token_id in ids[:-1]:
        # a character may need several tokens here, which is no matter for the offsets of markers
        piece = small.decode([token_id]) if token_id == DSML else small.token_bytes(token_id)
        piece = piece if isinstance(piece, str) else piece.decode("latin-1")
        events += parser.push(piece, [at] if token_id == DSML else [])
        at += len(piece)
    events += parser.finish()
    calls, done = [], 0
    for event in events:
        if isinstance(event, CallStart):
            calls.append((event.name, ""))
        elif isinstance(event, CallArguments):
            name, arguments = calls[event.index]
            calls[event.index] = name, arguments + event.text
        else:
            assert isinstance(event, CallEnd), event
            done += 1
    assert done == len(calls)
    return [(name, _as_text(arguments)) for name, arguments in calls]


def _as_text(arguments):
    return arguments.encode("latin-1").decode("utf-8", errors="replace")


def check_call(name, arguments):
    value, schema = json.loads(arguments), BY_NAME[name]
    if name in ("nothing", "empty"):
        assert value == {}
    elif name == "optional":
        assert set(value) <= {"x", "y"}
        assert isinstance(value.get("x", 0), int | float)
        assert value.get("y", "z") == "z"
    else:
        assert {"text", "list"} <= set(value) <= set(schema["properties"])
        assert isinstance(value["text"], str)
        for key in ("list", *({"inner"} & set(value))):
            flags = value[key] if key == "list" else value[key]["flags"]
            assert len(flags) <= 2
            assert set(map(type, flags)) <= {bool}
        for key in {"count", "same"} & set(value):
            check_json(value[key], {"type": "integer", "minimum": 1, "maximum": 20})
        assert value.get("kind", "a") in ["a", "</b>", 3]
        assert value.get("code", "ab").isalpha()
        assert len(value.get("short", "")) <= 3
        assert isinstance(value.get("maybe"), str | None)
        assert isinstance(value.get("both", True), str | bool)


@pytest.mark.parametrize("seed", range(6))
def test_required(compiler, small, seed):
    for name, arguments in calls_of(compiler, small, seed):
        check_call(name, arguments)


def test_every_tool_and_argument_can_come(compiler, small):
    calls = [call for seed in range(10, 22) for call in calls_of(compiler, small, seed)]
    assert {name for name, _ in calls} == set(BY_NAME)
    lookups = [
        call for seed in range(30) for call in calls_of(compiler, small, seed, name="lookup")
    ]
    assert {key for _, text in lookups for key in json.loads(text)} == set(LOOKUP["properties"])


@pytest.mark.parametrize("name", BY_NAME)
def test_named(compiler, small, name):
    for called, arguments in calls_of(compiler, small, 1, name=name):
        assert called == name
        check_call(name, arguments)


def test_one_call_only(compiler, small):
    for seed in range(4):
        assert len(calls_of(compiler, small, seed, parallel=False)) == 1


def test_arguments_that_no_schema_declares(compiler, small):
    tools = [tool("free", parameters={"type": "object", "additionalProperties": {"type": "null"}})]
    found = {}
    for seed in range(6):
        with suppress(CompletionError):  # the one thing that no grammar holds: a name comes once
            for _, text in calls_of(compiler, small, seed, tools):
                found.update(json.loads(text))
    assert set(found.values()) == {None}


def test_it_follows_the_reasoning(compiler, small):
    tag = required_tools_tag(TOOLS, dsml_token_id=DSML)
    guided = GuidedDecodingParams(structural_tag=tag, start_after=END_THINK)
    guide = compiler.compile(guided).begin(params(guided))
    assert DSML in allowed_ids(guide.bitmask)
    guide.advance(END_THINK)
    (newline,) = small.encode("\n")
    assert allowed_ids(guide.bitmask) == [newline]


def test_what_is_refused():
    for tools, options, parameter in [
        ([], {}, "tools"),
        (TOOLS, {"name": "other"}, "tool_choice"),
        ([tool("t", parameters={"properties": {'a" string="b': {}}})], {}, "tools"),
        ([tool("t", parameters={"properties": {"a": {"$ref": "#/$defs/none"}}})], {}, "tools"),
        ([tool("t", parameters={"$ref": "#"})], {}, "tools"),
        (
            [tool("t", parameters={"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}]}}})],
            {},
            "tools",
        ),
    ]:
        with pytest.raises(RequestError) as caught:
            required_tools_tag(tools, dsml_token_id=DSML, **options)
        assert caught.value.parameter == parameter
