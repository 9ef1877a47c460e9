"""Thinking and its effort, in every dialect."""

import pytest

from tests.runtime.server.openai.bodies import chat, refusal, turn

ON, OFF = {"type": "enabled"}, {"type": "disabled"}


@pytest.mark.parametrize(
    ("fields", "thinking", "effort"),
    [
        ({}, True, None),
        ({"thinking": ON}, True, None),
        ({"thinking": OFF}, False, None),
        ({"chat_template_kwargs": {"thinking": True}}, True, None),
        ({"chat_template_kwargs": {"thinking": False}}, False, None),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False, None),
        ({"chat_template_kwargs": {"enable_thinking": True, "other": 1}}, True, None),
        ({"reasoning_effort": "none"}, False, None),
        ({"reasoning_effort": "minimal"}, True, "high"),
        ({"reasoning_effort": "low"}, True, "high"),
        ({"reasoning_effort": "medium"}, True, "high"),
        ({"reasoning_effort": "high"}, True, "high"),
        ({"reasoning_effort": "xhigh"}, True, "max"),
        ({"reasoning_effort": "max"}, True, "max"),
        ({"chat_template_kwargs": {"reasoning_effort": "max"}}, True, "max"),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "max"}},
            True,
            "high",
        ),
        ({"thinking": OFF, "reasoning_effort": "max"}, False, None),
        ({"thinking": ON, "reasoning_effort": "max"}, True, "max"),
        ({"thinking": OFF, "reasoning_effort": "none"}, False, None),
        ({"thinking": OFF, "chat_template_kwargs": {"thinking": False}}, False, None),
    ],
)
def test_fields_and_what_they_mean(fields, thinking, effort):
    found = turn(**fields)
    assert (found.thinking, found.effort) == (thinking, effort)


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"thinking": ON, "reasoning_effort": "none"}, "reasoning_effort"),
        (
            {"thinking": ON, "chat_template_kwargs": {"thinking": False}},
            "chat_template_kwargs.thinking",
        ),
        (
            {"chat_template_kwargs": {"thinking": False, "enable_thinking": True}},
            "chat_template_kwargs.enable_thinking",
        ),
    ],
)
def test_contradictions_are_refused(fields, parameter):
    found, message = refusal(turn, **fields)
    assert found == parameter
    assert "agree" in message


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"thinking": {"type": "maybe"}}, "thinking.type"),
        ({"thinking": {}}, "thinking.type"),
        ({"thinking": True}, "thinking"),
        ({"reasoning_effort": "extreme"}, "reasoning_effort"),
        ({"chat_template_kwargs": {"thinking": "yes"}}, "chat_template_kwargs.thinking"),
    ],
)
def test_illegal_values(fields, parameter):
    assert refusal(chat, **fields)[0] == parameter
