"""The strict parser: the cases of the published one, and further refusals."""

from __future__ import annotations

import json

import pytest

from dsv4_trt.errors import CompletionError
from dsv4_trt.runtime.chat.parse import parse_completion
from tests.golden_data import golden_file
from tests.runtime.chat.outputs import DSML, EOS, block, parameter

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {}}}


def cases():
    found = json.loads(golden_file("chat", "parse.json").read_text("utf-8"))
    return [pytest.param(case, id=f"{case['id']} {case['tag']}") for case in found]


@pytest.mark.parametrize("case", cases())
def test_golden_case(case):
    thinking = case["thinking_mode"] == "thinking"
    if "error" in case:
        with pytest.raises(CompletionError, match=r"the output is .* at character \d+; expected"):
            parse_completion(case["text"], thinking=thinking)
    else:
        assert parse_completion(case["text"], thinking=thinking) == case["message"]


def test_numbers_keep_their_spelling():
    body = parameter("a", "1e3", is_text=False) + parameter("b", "1.0", is_text=False)
    body += parameter("c", "9" * 30, is_text=False)
    message = parse_completion(block(("f", body)) + EOS)
    arguments = message["tool_calls"][0]["function"]["arguments"]
    assert arguments == '{"a": 1e3, "b": 1.0, "c": ' + "9" * 30 + "}"


def test_a_call_of_an_unknown_tool_is_refused_where_tools_are_given():
    text = block(("weather", "")) + EOS
    assert parse_completion(text, tools=[WEATHER])["tool_calls"]
    with pytest.raises(CompletionError, match=r"calls 'wether'; expected one of .*'weather'"):
        parse_completion(text.replace("weather", "wether"), tools=[WEATHER])
    with pytest.raises(CompletionError, match="calls 'weather'"):
        parse_completion(text, tools=[])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"a{DSML}b{EOS}", "no ｜DSML｜ in text"),
        (f"<｜begin▁of▁sentence｜>a{EOS}", "no <｜begin▁of▁sentence｜> in text"),
        (f"a{EOS}{EOS}", "no <｜end▁of▁sentence｜> in text"),
        (block(("f", "x")) + EOS, "a parameter or the end of the call"),
        (block() + "\n" + EOS, "or nothing, after tool calls"),
        (block(("f", ""), ("g", "")).replace("\n<", "<"), "at the end"),
        (block((f"{DSML}", "")) + EOS, "a call or the end of the block"),
        (block(("f", parameter(DSML, "x"))) + EOS, "a parameter or the end of the call"),
        (block(("f", parameter("a", "x") * 2)) + EOS, "parameter 'a' once"),
        (block(("f", parameter("a", "x")[:-1])) + EOS, "the end of the parameter's line"),
    ],
)
def test_refusal(text, expected):
    with pytest.raises(CompletionError, match=expected):
        parse_completion(text)
