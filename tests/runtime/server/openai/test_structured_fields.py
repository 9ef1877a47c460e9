"""What the output has to look like, in every name it has."""

import pytest

from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams
from dsv4_trt.runtime.server.openai.structured_fields import choice_grammar
from tests.runtime.server.openai.bodies import chat, refusal, turn

SCHEMA = {"type": "object", "properties": {"b": {}, "a": {}}}
NAMED = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, {"json_object": True}),
        ({"response_format": NAMED}, {"json": SCHEMA}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            {"json": SCHEMA},
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            {"json_object": True},
        ),
        ({"guided_json": SCHEMA}, {"json": SCHEMA}),
        ({"guided_json": '{"type": "object"}'}, {"json": {"type": "object"}}),
        ({"guided_regex": "[0-9]+"}, {"regex": "[0-9]+"}),
        ({"guided_grammar": 'root ::= "a"'}, {"grammar": 'root ::= "a"'}),
        ({"guided_choice": ["a", 'b"']}, {"grammar": r'root ::= "a" | "b\""'}),
        ({"structured_outputs": {"json": SCHEMA}}, {"json": SCHEMA}),
        ({"structured_outputs": {"json_object": True}}, {"json_object": True}),
        ({"structured_outputs": {"regex": "a"}}, {"regex": "a"}),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, {"grammar": 'root ::= "a"'}),
        ({"structured_outputs": {"choice": ["a"]}}, {"grammar": 'root ::= "a"'}),
        (
            {"structured_outputs": {"structural_tag": {"format": {}}}},
            {"structural_tag": {"format": {}}},
        ),
        ({"structured_outputs": {"json_object": False}}, None),
        ({"structured_outputs": {}}, None),
    ],
)
def test_fields_and_what_they_mean(fields, meant):
    assert turn(**fields).guided == (None if meant is None else GuidedDecodingParams(**meant))


def test_the_prompt_states_the_schema_of_a_response_format_alone():
    assert turn(response_format=NAMED).response_format == SCHEMA
    assert turn(guided_json=SCHEMA).response_format is None
    assert turn(response_format={"type": "json_object"}).response_format is None


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"guided_regex": "a", "response_format": NAMED}, "response_format.json_schema.schema"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": "[1]"}, "guided_json"),
    ],
)
def test_contradictions_are_refused(fields, parameter):
    assert refusal(turn, **fields)[0] == parameter


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": "json_object"}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"a": 1e999}}}},
            "response_format.json_schema.schema",
        ),
        ({"guided_json": 5}, "guided_json"),
        ({"guided_regex": ""}, "guided_regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": [1]}, "guided_choice[0]"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
    ],
)
def test_illegal_values_name_their_field(fields, parameter):
    assert refusal(chat, **fields)[0] == parameter


def test_choices_of_a_grammar_are_escaped():
    assert choice_grammar(["a\\b", "\n", "é"]) == r'root ::= "a\\b" | "\u000a" | "é"'
