"""Tools and the choice among them."""

import json

import pytest

from dsv4_trt.runtime.server.chat_turn import ToolChoice
from tests.runtime.server.openai.bodies import CLOCK, WEATHER, chat, refusal, turn

NAMED = {"type": "function", "function": {"name": "clock"}}


def allowed(mode, *names):
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice(kind="auto")),
        ("none", ToolChoice(kind="none")),
        ("required", ToolChoice(kind="required")),
        (NAMED, ToolChoice(kind="named", name="clock")),
        (allowed("auto", "clock", "weather"), ToolChoice(kind="auto")),
        (allowed("required", "clock", "weather"), ToolChoice(kind="required")),
    ],
)
def test_choices(choice, meant):
    found = turn(tools=[WEATHER, CLOCK], tool_choice=choice)
    assert found.tool_choice == meant
    assert {tool["function"]["name"] for tool in found.tools} == {"weather", "clock"}


def test_of_allowed_tools_the_model_sees_those_alone():
    found = turn(tools=[WEATHER, CLOCK], tool_choice=allowed("auto", "clock"))
    assert found.tools == [CLOCK]


def test_a_function_is_shown_as_the_client_wrote_it():
    function = {"strict": True, "zz": 1, "parameters": {"b": 1, "a": None}, "name": "f"}
    found = turn(tools=[{"function": function, "type": "function"}]).tools[0]
    assert json.dumps(found["function"]) == json.dumps(function)


def test_parallel_calls():
    assert turn().parallel_tool_calls
    assert turn(parallel_tool_calls=True).parallel_tool_calls
    assert not turn(parallel_tool_calls=False).parallel_tool_calls


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name"),
        (
            {"tools": [WEATHER], "tool_choice": allowed("auto", "weather", "clock")},
            "tool_choice.allowed_tools.tools[1].function.name",
        ),
    ],
)
def test_choices_that_can_not_be_met(fields, parameter):
    assert refusal(turn, **fields)[0] == parameter


def test_a_named_tool_must_be_there():
    parameter, message = refusal(turn, tools=[WEATHER], tool_choice=NAMED)
    assert parameter == "tool_choice.function.name"
    assert "'clock'" in message
    assert "weather" in message


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": 'a" b'}}]},
            "tools[0].function.name",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        ({"tools": [WEATHER], "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": 5}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "custom"}}, "tool_choice"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function"}},
            "tool_choice.function",
        ),
        (
            {"tools": [WEATHER], "tool_choice": allowed("never", "weather")},
            "tool_choice.allowed_tools.mode",
        ),
    ],
)
def test_illegal_tools_name_their_place(fields, parameter):
    assert refusal(chat, **fields)[0] == parameter
