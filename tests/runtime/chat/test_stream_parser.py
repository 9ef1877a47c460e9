"""Streams of one output: the same events for every cut, the strict parser's message, nothing lost."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_trt.errors import CompletionError
from dsv4_trt.runtime.chat.events import CallArguments, CallEnd, CallStart, Content, Reasoning
from dsv4_trt.runtime.chat.parse import parse_completion
from dsv4_trt.runtime.chat.stream_parser import StreamParser
from tests.golden_data import golden_file
from tests.runtime.chat.outputs import (
    DSML,
    EOS,
    block,
    cuts,
    joined,
    message_of,
    parameter,
    read,
)
from tests.runtime.chat.source_pattern import source_pattern

GOLDEN = json.loads(golden_file("chat", "parse.json").read_text("utf-8"))
MARKERS = (DSML, "<think>", "</think>")
TWO_CALLS = block(
    ("f", parameter("a", 'x\n"y" </ <') + parameter("b", "[1, 2]", is_text=False)), ("g", "\n")
)
PIECES = [
    *(f"<{DSML}tool_calls>", f"</{DSML}tool_calls>", f"</{DSML}invoke>", f"<{DSML}parameter"),
    *(f'<{DSML}invoke name="f">\n', parameter("a", "v"), parameter("b", "1", is_text=False)),
    *(block(("f", "")), block(("g", parameter("a", "x"))), "</think>", "<think>", EOS, DSML),
    *("\n", "\n\n", "<", "</", ">", '"', "name=", "parameter", "tool_calls>\n", "｜DS", "é🙂", " "),
]
outputs = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def mutated(draw):
    """A golden output or a made one with a stretch taken out, and something put there."""
    text = draw(st.sampled_from([case["text"] for case in GOLDEN] + ["r</think>" + TWO_CALLS]))
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 12)))
    return text[:start] + draw(st.sampled_from(["", *PIECES])) + text[end:]


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["id"])
def test_golden_output_at_every_cut(case):
    text, thinking = case["text"], case["thinking_mode"] == "thinking"
    whole = read([text], thinking=thinking)
    assert read(text, thinking=thinking) == whole
    for size in (2, 3, 7):
        chunks = [text[i : i + size] for i in range(0, len(text), size)]
        assert read(chunks, thinking=thinking) == whole
    for place in range(len(text) + 1):
        assert read(cuts(text, [place]), thinking=thinking) == whole
    if "message" in case:
        assert message_of(whole) == case["message"]


@settings(max_examples=100, deadline=None)
@given(st.one_of(outputs, st.composite(mutated)()), st.booleans(), st.data())
def test_any_output(text, thinking, data):
    whole = read([text], thinking=thinking)
    assert read(text, thinking=thinking) == whole
    places = data.draw(st.sets(st.integers(0, len(text)), max_size=6))
    assert read(cuts(text, places), thinking=thinking) == whole
    check_nothing_lost(text, thinking, None)
    try:
        expected = parse_completion(text, thinking=thinking)
    except CompletionError:
        return
    assert message_of(whole) == expected


@settings(max_examples=100, deadline=None)
@given(outputs, st.booleans(), st.data())
def test_any_output_with_any_marks(text, thinking, data):
    places = [i for i in range(len(text)) if text.startswith(MARKERS, i)]
    some = st.sets(st.integers(0, len(text) + 3)).map(sorted)
    marks = data.draw(st.one_of(some, st.just(places), st.just(places[::2])))
    whole = read([text], thinking=thinking, marks=marks)
    assert read(text, thinking=thinking, marks=marks) == whole
    parser = StreamParser(thinking)
    events = [
        e for i, char in enumerate(text) for e in parser.push(char, [i] if i in marks else [])
    ]
    assert joined(events + parser.finish()) == whole
    check_nothing_lost(text, thinking, marks)


def check_nothing_lost(text, thinking, marks):
    parser = StreamParser(thinking)
    events = parser.push(text, marks) + parser.finish()
    pattern = source_pattern(events, thinking=thinking, has_marks=marks is not None)
    assert pattern.fullmatch(text), events


MALFORMED = [
    # what comes, and the events of it
    ("x\n\n" + "<|tool_calls>", [Content("x\n\n<|tool_calls>")]),
    (TWO_CALLS[1:], [Content(TWO_CALLS[1:])]),
    ("x" + TWO_CALLS[2:], [Content("x" + TWO_CALLS[2:])]),
    (f"a {DSML} b", [Content(f"a {DSML} b")]),
    ("<think>a</think>b", [Content("<think>a</think>b")]),
    (f"a{EOS}b{EOS}", [Content(f"a{EOS}b")]),
    (
        block(("f", "")) + "\nmore",
        [CallStart(0, "f"), CallArguments(0, "{}"), CallEnd(0), Content("\nmore")],
    ),
    (
        block(("f", "")) + block(("g", "")),
        [
            *(CallStart(0, "f"), CallArguments(0, "{}"), CallEnd(0)),
            *(CallStart(1, "g"), CallArguments(1, "{}"), CallEnd(1)),
        ],
    ),
    (
        block(("f", parameter("a", "x") + parameter("a", "y"))),
        [
            *(CallStart(0, "f"), CallArguments(0, '{"a": "x')),
            Content(
                f"</{DSML}parameter>\n{parameter('a', 'y')}</{DSML}invoke>\n</{DSML}tool_calls>"
            ),
        ],
    ),
    (block(("f", "x")), [CallStart(0, "f"), Content(f"x</{DSML}invoke>\n</{DSML}tool_calls>")]),
    (
        f"\n\n<{DSML}tool_calls>" + block(("f", "")),
        [
            Content(f"\n\n<{DSML}tool_calls>"),
            *(CallStart(0, "f"), CallArguments(0, "{}"), CallEnd(0)),
        ],
    ),
]


@pytest.mark.parametrize(("text", "expected"), MALFORMED)
def test_malformed_output(text, expected):
    assert read([text]) == expected
    assert read(text) == expected


def test_marker_inside_a_value_belongs_to_it():
    value = f"<{DSML}tool_calls> </{DSML}invoke> </{DSML}param>"
    expected = [CallStart(0, "f"), CallArguments(0, json.dumps({"a": value}, ensure_ascii=False))]
    assert read(block(("f", parameter("a", value)))) == [*expected, CallEnd(0)]


def test_every_cut_of_the_end():
    """An output that ends early, at any character, shows no part of a tag once a call has started."""
    text = "why</think>So." + TWO_CALLS
    whole = read([text], thinking=True)
    arguments = [e.text for e in whole if isinstance(e, CallArguments)]
    names_end = text.index('name="f">\n') + len('name="f">\n')
    for length in range(len(text)):
        events = read([text[:length]], thinking=True)
        if length < text.index("</think>") + len("</think>"):
            assert "".join(e.text for e in events) == text[:length].removesuffix("</think>")
            assert all(isinstance(e, Reasoning) for e in events)
            continue
        content = "".join(e.text for e in events if isinstance(e, Content))
        begun = [e for e in events if isinstance(e, CallArguments)]
        assert all(arguments[e.index].startswith(e.text) for e in begun)
        assert all(
            arguments[e.index] == begun[e.index].text for e in events if isinstance(e, CallEnd)
        )
        assert content == ("So." if length >= names_end else text[len("why</think>") : length])


def test_thinking_that_opens_again_is_dropped_and_a_later_marker_is_not():
    assert read("<think>a<think>b</think>c", thinking=True) == [
        Reasoning("a<think>b"),
        Content("c"),
    ]
    assert read("a<think>", thinking=True) == [Reasoning("a<think>")]


def test_a_block_in_the_reasoning_is_no_call():
    assert read(TWO_CALLS, thinking=True) == [Reasoning(TWO_CALLS)]


def test_without_calls_a_block_is_text():
    assert read(TWO_CALLS, calls=False) == [Content(TWO_CALLS)]


def test_arguments_come_while_the_model_writes_them():
    parser = StreamParser(thinking=False)
    head = f'\n\n<{DSML}tool_calls>\n<{DSML}invoke name="f">\n'
    assert parser.push(head[:-1]) == []
    assert parser.push(head[-1]) == [CallStart(0, "f")]
    assert parser.push(f'<{DSML}parameter name="a" string="true">') == [CallArguments(0, '{"a": "')]
    assert parser.push('x "') == [CallArguments(0, 'x \\"')]
    assert parser.push("\n<") == [CallArguments(0, "\\n")]
    assert parser.push("/a") == [CallArguments(0, "</a")]
    assert parser.push(f"</{DSML}parameter>\n</{DSML}invoke") == []
    assert parser.push(">") == [CallArguments(0, '"}'), CallEnd(0)]


def test_content_is_held_back_for_a_line_end_only():
    parser = StreamParser(thinking=False)
    shown = [parser.push(char, ()) for char in "a\n\n<b\n</think>"]
    texts = ["".join(event.text for event in events) for events in shown]
    assert texts == ["a", "", "", "", "\n\n<b", "", "\n<", *"/think>"]


def test_only_sampled_markers_are_markers():
    """Spelled by plain tokens the same text is an answer about the format, not a call."""
    text = "r</think>" + TWO_CALLS
    assert read(text, thinking=True, marks=()) == [Reasoning(text)]
    end_think = [text.index("</think>")]
    assert read(text, thinking=True, marks=end_think) == [Reasoning("r"), Content(TWO_CALLS)]
    marks = [i for i in range(len(text)) if text.startswith(MARKERS, i)]
    assert [e.name for e in read(text, thinking=True, marks=marks) if isinstance(e, CallStart)] == [
        "f",
        "g",
    ]
    for missing in marks[
        1:4
    ]:  # a tag that opens the block, the call or its parameter is only spelled
        some = [mark for mark in marks if mark != missing]
        events = read(text, thinking=True, marks=some)
        assert not any(isinstance(event, CallEnd) for event in events)


def test_an_end_of_sentence_that_is_spelled_stays_with_marks():
    assert read([f"a{EOS}"], marks=()) == [Content(f"a{EOS}")]
    assert read([f"a{EOS}"]) == [Content("a")]


def test_nothing_may_follow_the_end():
    parser = StreamParser(thinking=False)
    parser.finish()
    with pytest.raises(AssertionError, match="after the end"):
        parser.push("a")
