"""What prompts are made of beyond the published cases, and what is refused, by its path."""

from __future__ import annotations

import pytest

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.chat.encoding import encode_messages, encode_segments
from dsv4_trt.runtime.chat.segments import Segment

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def user(content="a", **fields):
    return {"role": "user", "content": content, **fields}


def answer(content="b", **fields):
    return {"role": "assistant", "content": content, **fields}


def calling(*ids, arguments="{}"):
    calls = [{"id": i, "function": {"name": "f", "arguments": arguments}} for i in ids]
    return answer("", tool_calls=calls)


def result(content="r", **fields):
    return {"role": "tool", "content": content, **fields}


def test_segments_keep_markup_apart_and_texts_whole():
    assert encode_segments([user("a"), user("<think>")], thinking=True) == [
        Segment(BOS, is_markup=True),
        Segment("<｜User｜>", is_markup=True),
        Segment("a\n\n<think>", is_markup=False),
        Segment("<｜Assistant｜>", is_markup=True),
        Segment("<think>", is_markup=True),
    ]


def test_tools_and_format_join_the_system_message_in_front():
    own = [{"role": "system", "content": "s", "tools": [TOOL], "response_format": {"a": 1}}]
    given = {"tools": [TOOL], "response_format": {"a": 1}}
    assert encode_messages([{"role": "system", "content": "s"}], **given) == encode_messages(own)
    own[0]["content"] = ""
    assert encode_messages([user()], **given) == encode_messages([*own, user()])


def test_tools_given_keep_the_reasoning():
    messages = [user(), answer(reasoning_content="why"), user("c")]
    assert "why" not in encode_messages(messages, thinking=True)
    assert "<think>why</think>b" in encode_messages(messages, [TOOL], thinking=True)


def test_effort_comes_after_the_begin_of_sentence():
    prompt = encode_messages([user()], thinking=True, reasoning_effort="max")
    assert prompt.startswith(f"{BOS}Reasoning Effort: Absolute maximum")
    assert prompt == encode_messages([user()], thinking=True).replace(
        BOS, prompt[: prompt.index("<｜User｜>")]
    )


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("split", range(1, 6))
def test_a_prompt_in_two_parts(split, thinking):
    """Where a turn ends, the rest after `context` is what the whole adds."""
    messages = [{"role": "system", "content": "s"}, user(), calling("1"), result(tool_call_id="1")]
    messages += [answer(reasoning_content="why"), user("c")]
    options = {"thinking": thinking, "drop_thinking": False}
    before, rest = messages[:split], messages[split:]
    whole = encode_messages(messages, **options)
    assert (
        encode_messages(before, **options) + encode_messages(rest, context=before, **options)
        == whole
    )


def test_a_context_that_ends_inside_a_turn_is_refused():
    with pytest.raises(
        RequestError, match="a user's turn that messages\\[0\\] goes on with"
    ) as raised:
        encode_messages([user("c")], context=[user("a")])
    assert raised.value.parameter == "context"


def test_results_take_the_places_of_results_in_the_order_of_calls():
    messages = [calling("x", "y"), result("ry", tool_call_id="y"), user("between")]
    messages += [result("rx", tool_call_id="x")]
    prompt = encode_messages(messages)
    texts = ["<tool_result>rx</tool_result>", "between", "<tool_result>ry</tool_result>"]
    assert "\n\n".join(texts) in prompt


def test_results_without_ids_keep_their_order():
    calls = [calling(None, None), result("r1"), result("r2")]
    assert "r1</tool_result>\n\n<tool_result>r2" in encode_messages(calls)


def test_texts_in_parts():
    parts = [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]
    assert "<｜User｜>x\n\ny<｜Assistant｜>" in encode_messages([user(parts)])


@pytest.mark.parametrize("task", ["query", "authority", "domain", "title", "read_url"])
def test_a_task_stands_where_the_assistant_would(task):
    assert encode_messages([user(task=task)], thinking=True).endswith(f"a<｜{task}｜>")


def test_a_task_ends_a_turn():
    prompt = encode_messages([user("a"), user("b", task="query"), user("c")])
    assert prompt == f"{BOS}<｜User｜>a\n\nb<｜User｜>c<｜Assistant｜></think>"


def test_the_answer_of_a_task_has_no_reasoning():
    messages = [user(task="action"), answer("Search", reasoning_content="x")]
    assert encode_messages(messages, thinking=True).endswith(
        f"<｜Assistant｜><think><｜action｜>Search{EOS}"
    )


@pytest.mark.parametrize(
    ("arguments", "parameters"),
    [
        ("{}", "\n"),
        ('{"a": 1e3}', '<D parameter name="a" string="false">1e3</D parameter>\n'),
        ('{"a": 1.0, "b": [1,2]}',
         '<D parameter name="a" string="false">1.0</D parameter>\n'
         '<D parameter name="b" string="false">[1,2]</D parameter>\n'),
        ('{"a":1e3}', '<D parameter name="a" string="false">1000.0</D parameter>\n'),
        ('{"a": ["\\u00e9"]}', '<D parameter name="a" string="false">["é"]</D parameter>\n'),
        ('{"a": ' + "9" * 5000 + "}",
         f'<D parameter name="a" string="false">{"9" * 5000}</D parameter>\n'),
        ('{"a": 1, "a": 2}', '<D parameter name="a" string="false">2</D parameter>\n'),
        ('{"a": "\\u00e9\\n"}', '<D parameter name="a" string="true">é\n</D parameter>\n'),
        ("[1]", '<D parameter name="arguments" string="true">[1]</D parameter>\n'),
        ("", '<D parameter name="arguments" string="true"></D parameter>\n'),
        ({"a": 1}, '<D parameter name="arguments" string="false">{"a": 1}</D parameter>\n'),
    ],
)  # fmt: skip
def test_arguments(arguments, parameters):
    """In the layout of our parsers values keep their spelling, else they are as the reference's."""
    prompt = encode_messages([calling("1", arguments=arguments)])
    body = parameters.replace("D ", "｜DSML｜")
    assert (
        f'<｜DSML｜invoke name="f">\n{body}</｜DSML｜invoke>\n</｜DSML｜tool_calls>{EOS}' in prompt
    )


def test_messages_are_not_changed():
    messages = [{"role": "system", "content": "s"}, user(), user("b"), calling("1", "2")]
    messages += [result("r2", tool_call_id="2"), result("r1", tool_call_id="1")]
    before = repr(messages)
    assert encode_messages(messages, [TOOL]) == encode_messages(messages, [TOOL])
    assert repr(messages) == before


def path(*messages, **options):
    with pytest.raises(RequestError) as raised:
        encode_messages(list(messages), **options)
    assert str(raised.value).startswith(raised.value.parameter.split(".")[0].split("[")[0])
    return raised.value.parameter


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("text", ""),
        ({}, ".role"),
        ({"role": ["user"]}, ".role"),
        (user(None), ".content"),
        (user(5), ".content"),
        (user("\ud800"), ".content"),
        (user(["a"]), ".content[0]"),
        (user([{"type": "text"}]), ".content[0].text"),
        (user([{"type": "image_url", "image_url": {}}]), ".content[0].type"),
        (user([{"text": "a"}]), ".content[0].type"),
        (user(tools=[TOOL]), ".tools"),
        (user(task="nonsense"), ".task"),
        (user(task=["query"]), ".task"),
        ({"role": "system", "content": None}, ".content"),
        ({"role": "system", "content": "s", "task": "query"}, ".task"),
        ({"role": "system", "content": "s", "tools": {}}, ".tools"),
        ({"role": "system", "content": "s", "tools": [5]}, ".tools[0]"),
        ({"role": "system", "content": "s", "response_format": "json"}, ".response_format"),
        ({"role": "system", "content": "s", "response_format": {"a": {1}}}, ".response_format"),
        (answer(reasoning_content=5), ".reasoning_content"),
        (answer(wo_eos="yes"), ".wo_eos"),
        (answer(tool_calls={}), ".tool_calls"),
        (answer(tool_calls=["f"]), ".tool_calls[0]"),
        (answer(tool_calls=[{}]), ".tool_calls[0].function"),
        (answer(tool_calls=[{"function": {"name": ""}}]), ".tool_calls[0].function.name"),
        (answer(tool_calls=[{"function": {"name": 'f">\n'}}]), ".tool_calls[0].function.name"),
        (answer(tool_calls=[{"function": {"name": "f"}}]), ".tool_calls[0].function.arguments"),
        (calling(5), ".tool_calls[0].id"),
        (calling("1", arguments=[1]), ".tool_calls[0].function.arguments"),
        (calling("1", arguments='{"a": "\\ud800"}'), ".tool_calls[0].function.arguments"),
        (calling("1", arguments='{"k\\" string=\\"": 1}'), ".tool_calls[0].function.arguments"),
        (calling("1", arguments="[" * 100_000), ".tool_calls[0].function.arguments"),
        (calling("1", arguments='{"a":' + "9" * 5000 + "}"), ".tool_calls[0].function.arguments"),
        (calling("1", arguments={"a": {1}}), ".tool_calls[0].function.arguments"),
        (result(), ""),
    ],
)
def test_what_is_refused_is_named(message, field):
    assert path(message) == f"messages[0]{field}"
    assert path(user(), message, user()) == f"messages[1]{field}"
    assert path(user(), context=[message]) == f"context[0]{field}"


def test_results_that_answer_no_call_are_refused():
    assert path(calling("1"), answer(), result(tool_call_id="1")) == "messages[2]"
    assert path(calling("1"), result(tool_call_id="2")) == "messages[1].tool_call_id"
    assert path(calling("1"), result(tool_call_id=1)) == "messages[1].tool_call_id"


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"thinking": "fast"}, "thinking"),
        ({"thinking": None}, "thinking"),
        ({"drop_thinking": 1}, "drop_thinking"),
        ({"add_default_bos_token": "no"}, "add_default_bos_token"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"reasoning_effort": ["max"]}, "reasoning_effort"),
        ({"encoder_revision": "v4.1"}, "encoder_revision"),
        ({"tools": "f"}, "tools"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [{"function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tools": [{"function": {"name": "f", "x": "\ud800"}}]}, "tools[0].function"),
        ({"response_format": "json"}, "response_format"),
        ({"context": "a"}, "context"),
    ],
)
def test_options_that_are_refused(options, parameter):
    assert path(user(), **options) == parameter


def test_messages_have_to_be_a_list():
    with pytest.raises(RequestError) as raised:
        encode_messages("Hi")
    assert raised.value.parameter == "messages"


def test_tools_in_two_places_are_refused():
    system = {"role": "system", "content": "s", "tools": [TOOL], "response_format": {"a": 1}}
    assert path(system, tools=[TOOL]) == "tools"
    assert path(system, response_format={"a": 1}) == "response_format"
