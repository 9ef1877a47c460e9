"""Structured output through the Python API: the golden model, which says anything, says what it must."""

import json
import re

import pytest

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.chat.parse import parse_completion
from dsv4_trt.runtime.guided.tool_grammar import required_tools_tag
from dsv4_trt.runtime.llm import GuidedDecodingParams, SamplingParams
from tests.runtime.guided.walks import DSML, END_THINK, EOS, MARKERS, SIZE, small_tokenizer
from tests.runtime.llm.llms import open_llm
from tests.workshop import random_ids

PROMPT = random_ids(20, seed=3)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "kind": {"enum": ["cat", "dog"]},
        "legs": {"type": "integer", "minimum": 0, "maximum": 8},
    },
    "required": ["name", "kind", "legs"],
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "parameters": {
                "type": "object",
                "properties": {"code": {"type": "string", "maxLength": 4}, "n": {"enum": [1, 2]}},
                "required": ["code", "n"],
            },
        },
    }
]


@pytest.fixture(scope="module")
def llm(workshop, tiny_a):
    with open_llm(workshop, tiny_a, tokenizer=small_tokenizer()) as llm:
        llm._thread.executor.grammars.warm_up()
        yield llm


NO_SPACE = {small_tokenizer().encode(space)[0]: -100.0 for space in " \n\r\t"}


def run(llm, n=1, **kind):
    guided = GuidedDecodingParams(**kind)
    params = {"temperature": 1.0 if n > 1 else 0, "seed": 7, "n": n, "max_tokens": 200}
    params["logit_bias"] = NO_SPACE  # the model has no sense of when to stop it
    return llm.generate(PROMPT, SamplingParams(guided_decoding=guided, **params))


def test_json_of_a_schema(llm):
    for output in run(llm, n=2, json=SCHEMA).outputs:
        assert (output.finish_reason, output.stop_reason) == ("stop", EOS)
        value = json.loads(output.text)
        assert set(value) == {"name", "kind", "legs"}
        assert len(value["name"]) <= 8
        assert value["kind"] in ("cat", "dog")
        assert value["legs"] in range(9)


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ({"regex": "[0-9]{3}-[a-z]{2,5}"}, "[0-9]{3}-[a-z]{2,5}"),
        ({"grammar": 'root ::= ("ab" | "c"){2,4} "."'}, r"(ab|c){2,4}\."),
    ],
)
def test_other_kinds(llm, kind, pattern):
    output = run(llm, **kind).outputs[0]
    assert output.finish_reason == "stop"
    assert re.fullmatch(pattern, output.text)


def test_streaming_shows_the_same(llm):
    guided = GuidedDecodingParams(regex="[a-z]{9}é")
    params = SamplingParams(guided_decoding=guided, temperature=0)
    handle = llm.generate_async(PROMPT, params, streaming=True)
    text = "".join(step.outputs[0].text_diff for step in handle)
    assert text == llm.generate(PROMPT, params).outputs[0].text


def test_after_the_reasoning(llm):
    """A bias for `</think>` ends the reasoning of a model that does not know what it is."""
    guided = GuidedDecodingParams(regex="[ab]{3}", start_after=END_THINK)
    params = SamplingParams(
        guided_decoding=guided, seed=2, n=3, max_tokens=40, logit_bias={END_THINK: 5.0}
    )
    outputs = llm.generate(PROMPT, params).outputs
    for output in outputs:
        answer = output.text.partition(MARKERS[END_THINK])[2]
        assert EOS not in output.token_ids[:-1]
        if END_THINK in output.token_ids:
            assert re.fullmatch("[ab]{3}", answer)
            assert output.finish_reason == "stop"
        else:
            assert output.finish_reason == "length"
    assert any(END_THINK in output.token_ids for output in outputs)


def test_required_tool(llm):
    tag = required_tools_tag(TOOLS, dsml_token_id=DSML, parallel=False)
    guided = GuidedDecodingParams(structural_tag=tag)
    params = SamplingParams(guided_decoding=guided, seed=7, max_tokens=250)
    output = llm.generate(PROMPT, params).outputs[0]
    assert output.marks
    (call,) = parse_completion(output.text, tools=TOOLS)["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    assert len(arguments["code"]) <= 4
    assert arguments["n"] in (1, 2)


def test_an_illegal_grammar_is_refused(llm):
    with pytest.raises(RequestError, match="parenthesis"):
        run(llm, regex="(a")
    with pytest.raises(RequestError, match="names the token"):
        run(llm, grammar=f"root ::= Token({SIZE + 1})")
    assert run(llm, regex="ab").outputs[0].text == "ab"


def test_it_ends_with_its_llm(workshop, tiny_a):
    with open_llm(workshop, tiny_a, tokenizer=small_tokenizer()) as llm:
        run(llm, regex="ab")
        process = llm._thread.executor.grammars._trial._process
        assert process.poll() is None
    assert process.poll() is not None
