"""Parameters of structured output, refused with the name of the field."""

import pytest

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.guided.source import MAX_CHARACTERS, GrammarSource
from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams

GOOD = {
    "json": {"type": "object"},
    "json_object": True,
    "regex": "a+",
    "grammar": 'root ::= "a"',
    "structural_tag": {"type": "structural_tag", "format": {"type": "any_text"}},
}


@pytest.mark.parametrize("kind", GOOD)
def test_each_kind_alone_is_good(kind):
    guided = GuidedDecodingParams(**{kind: GOOD[kind]})
    SamplingParams(guided_decoding=guided).check(64)
    assert guided.kind == kind
    assert GrammarSource.of(guided) == GrammarSource.of(guided)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "guided_decoding"),
        ({"json": {}, "regex": "a"}, "guided_decoding"),
        ({"json_object": True, "grammar": "a"}, "guided_decoding"),
        ({"json": "{}"}, "guided_decoding.json"),
        ({"json_object": 1}, "guided_decoding.json_object"),
        ({"regex": 3}, "guided_decoding.regex"),
        ({"grammar": ["a"]}, "guided_decoding.grammar"),
        ({"structural_tag": {"type": "structural_tag"}}, "guided_decoding.structural_tag"),
        ({"regex": "a", "start_after": 64}, "guided_decoding.start_after"),
        ({"regex": "a", "start_after": -1}, "guided_decoding.start_after"),
        ({"regex": "a", "start_after": True}, "guided_decoding.start_after"),
    ],
)
def test_all_else_is_refused(given, field):
    with pytest.raises(RequestError) as caught:
        SamplingParams(guided_decoding=GuidedDecodingParams(**given)).check(64)
    assert caught.value.parameter == field


def test_another_type_is_refused():
    with pytest.raises(RequestError, match="is of type dict") as caught:
        SamplingParams(guided_decoding={"json": {}}).check(64)
    assert caught.value.parameter == "guided_decoding"


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ({"not": {"const": 1}}, "'not' at #"),
        ({"properties": {"a": {"if": {}}}}, "'if' at #/properties/a"),
        ({"$defs": {"d": {"uniqueItems": True}}}, "'uniqueItems' at #/\\$defs/d"),
        ({"items": {"contains": {}}}, "'contains' at #/items"),
        ({"items": [{}, {"dependentRequired": {}}]}, "'dependentRequired' at #/items/1"),
        ({"allOf": [{}, {}]}, "'allOf' with more than one schema"),
        ({"$ref": "http://a/b"}, "out of this document"),
        ({"anyOf": [{"required": ["a"]}], "type": "object"}, "'anyOf' beside 'type'"),
        ({"$ref": "#/$defs/d", "maxLength": 3}, "'\\$ref' beside 'maxLength'"),
        ({"type": "string", "pattern": "a", "maxLength": 3}, "'pattern' beside 'maxLength'"),
        ({"type": "string", "format": "date", "minLength": 3}, "'format' beside 'minLength'"),
    ],
)
def test_keywords_that_no_grammar_enforces_are_refused(schema, found):
    with pytest.raises(RequestError, match=found) as caught:
        GrammarSource.of(GuidedDecodingParams(json=schema))
    assert caught.value.parameter == "guided_decoding.json"


def test_names_of_properties_are_no_keywords():
    schema = {"properties": {"not": {"type": "string", "title": "if"}, "if": {}}, "title": "x"}
    GrammarSource.of(GuidedDecodingParams(json=schema))


def test_what_is_too_long_or_too_deep_is_refused_before_it_is_read():
    deep = {}
    for _ in range(5000):
        deep = {"items": deep}
    long = "a" * (MAX_CHARACTERS + 1)
    for given, found in [
        ({"json": deep}, "nests more than"),
        ({"structural_tag": {"format": deep}}, "nests more than"),
        ({"regex": long}, "has 262145 characters"),
        ({"json": {"const": long}}, "characters; expected 262144 at most"),
        ({"json": {"const": {1, 2}}}, "is no JSON"),
        ({"json": {"const": float("nan")}}, "is no JSON"),
        ({"json": {"const": "\ud800"}}, "is no JSON"),
    ]:
        with pytest.raises(RequestError, match=found):
            GrammarSource.of(GuidedDecodingParams(**given))


def test_tokens_that_a_grammar_names():
    tag = {
        "format": {
            "type": "tag",
            "begin": {"type": "token", "token": 3},
            "content": {"type": "grammar", "grammar": 'root ::= "a" Token(7, 8)'},
            "end": "x",
        },
        "trigger_tokens": [4, "</think>"],
    }
    assert GrammarSource.of(GuidedDecodingParams(structural_tag=tag)).token_ids == {3, 4, 7, 8}
    assert GrammarSource.of(GuidedDecodingParams(regex="Token(3)")).token_ids == set()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"logit_bias": {99: 1.0}}, "logit_bias"),
        ({"logit_bias": {1: 1000}}, "logit_bias"),
        ({"logit_bias": 3}, "logit_bias"),
        ({"stop": [""]}, "stop"),
        ({"stop": 3}, "stop"),
        ({"stop_token_ids": [99]}, "stop_token_ids"),
        ({"min_tokens": 99}, "min_tokens"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"logprobs": -1}, "logprobs"),
        ({"seed": -1}, "seed"),
    ],
)
def test_errors_of_sampling_params_name_their_field(given, field):
    with pytest.raises(RequestError) as caught:
        SamplingParams(**given).check(64)
    assert caught.value.parameter == field
