"""Messages of the API as V4's encoder takes them."""

import pytest

from tests.runtime.server.openai.bodies import HI, chat, refusal, turn

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def encoded(*messages):
    return turn(messages=[*messages]).messages


def test_roles():
    assert encoded(
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U", "name": "n"},
        {"role": "assistant", "content": None, "reasoning_content": "R", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "T"},
        {"role": "latest_reminder", "content": "L"},
        {"role": "user", "content": ""},
    ) == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "", "reasoning_content": "R", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "T"},
        {"role": "latest_reminder", "content": "L"},
        {"role": "user", "content": ""},
    ]


def test_a_developer_of_openai_s_is_the_system():
    assert encoded({"role": "developer", "content": "S"}, *HI)[0] == {
        "role": "system",
        "content": "S",
    }


def test_parts_are_joined_by_an_empty_line():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert encoded({"role": "user", "content": parts})[0]["content"] == "a\n\nb"
    assert encoded({"role": "user", "content": []})[0]["content"] == ""


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({}, None),
        ({"reasoning_content": None}, None),
        ({"reasoning_content": ""}, ""),
        ({"reasoning_content": "r"}, "r"),
        ({"reasoning": "r"}, "r"),
        ({"reasoning_content": "r", "reasoning": "other"}, "r"),
    ],
)
def test_reasoning_comes_back_in_either_name(given, meant):
    message = encoded({"role": "assistant", "content": "a", **given}, *HI)[0]
    assert message.get("reasoning_content") == meant


@pytest.mark.parametrize(
    ("messages", "parameter", "word"),
    [
        ([], "messages", "at least 1"),
        (None, "messages", "list"),
        ([*HI, {"role": "bot"}], "messages[1]", "assistant"),
        ([*HI, {"content": "x"}], "messages[1]", "role"),
        ([*HI, 5], "messages[1]", "role"),
        ([*HI, {"role": "user"}], "messages[1].content", "missing"),
        ([*HI, {"role": "user", "content": 5}], "messages[1].content", "text parts"),
        ([*HI, {"role": "tool", "content": "x"}], "messages[1].tool_call_id", "missing"),
        (
            [{"role": "user", "content": [{"type": "text"}]}],
            "messages[0].content[0].text",
            "missing",
        ),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "messages[0].content[0].type",
            "text parts only",
        ),
        (
            [{"role": "user", "content": [{"type": "input_audio"}]}],
            "messages[0].content[0].type",
            "'input_audio'",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "f"}}]}, *HI],
            "messages[0].tool_calls[0].function.arguments",
            "missing",
        ),
    ],
)
def test_illegal_messages_name_their_place(messages, parameter, word):
    found, message = refusal(chat, messages=messages)
    assert found == parameter
    assert word in message


PREFIX = {"role": "assistant", "content": "pre", "prefix": True}
ANSWER = {"role": "assistant", "content": "pre"}


@pytest.mark.parametrize(
    ("last", "fields"),
    [
        (PREFIX, {}),
        (PREFIX, {"continue_final_message": True}),
        (PREFIX, {"add_generation_prompt": False}),
        (ANSWER, {"continue_final_message": True}),
        (ANSWER, {"continue_final_message": True, "add_generation_prompt": False}),
    ],
)
def test_the_last_message_is_continued(last, fields):
    found = turn(messages=[*HI, last], **fields)
    assert found.continue_final
    assert found.messages[-1] == {"role": "assistant", "content": "pre"}


@pytest.mark.parametrize(
    ("messages", "fields", "parameter"),
    [
        ([*HI, ANSWER], {}, "messages[1].role"),
        (HI, {"continue_final_message": True}, "continue_final_message"),
        (HI, {"add_generation_prompt": False}, "add_generation_prompt"),
        ([*HI, PREFIX], {"add_generation_prompt": True}, "add_generation_prompt"),
        ([*HI, PREFIX], {"continue_final_message": False}, "continue_final_message"),
        (
            [*HI, ANSWER],
            {"continue_final_message": True, "add_generation_prompt": True},
            "add_generation_prompt",
        ),
        ([*HI, PREFIX, *HI], {}, "messages[1].prefix"),
    ],
)
def test_what_can_not_be_answered_is_refused(messages, fields, parameter):
    assert refusal(turn, messages=messages, **fields)[0] == parameter


def test_a_message_that_is_no_prefix_may_say_so():
    assert not turn(messages=[*HI, {**ANSWER, "prefix": False}, *HI]).continue_final
    assert not turn(add_generation_prompt=True, continue_final_message=False).continue_final
