"""Outputs read piece by piece, and events made comparable."""

from __future__ import annotations

from itertools import groupby

from dsv4_trt.runtime.chat.events import CallArguments, CallEnd, CallStart, Content, Reasoning
from dsv4_trt.runtime.chat.stream_parser import StreamParser

DSML = "｜DSML｜"
EOS = "<｜end▁of▁sentence｜>"


def read(pieces, *, thinking=False, marks=None, **options):
    """All events of an output in pieces, neighbours of a kind joined."""
    parser = StreamParser(thinking, **options)
    events = [event for piece in pieces for event in parser.push(piece, marks)]
    events += parser.finish()
    assert parser.finish() == []
    return joined(events)


def joined(events):
    """Events with neighbours of a kind made one."""

    def kind(event):
        return type(event), getattr(event, "index", None)

    result = []
    for (cls, index), group in groupby(events, kind):
        if cls in (CallStart, CallEnd):
            result += group
        else:
            text = "".join(event.text for event in group)
            result.append(cls(text) if index is None else cls(index, text))
    return result


def message_of(events):
    """The message in the form of the strict parser; only of whole calls."""
    reasoning = "".join(e.text for e in events if isinstance(e, Reasoning))
    content = "".join(e.text for e in events if isinstance(e, Content))
    functions = []
    for start in (e for e in events if isinstance(e, CallStart)):
        assert CallEnd(start.index) in events
        pieces = [e for e in events if isinstance(e, CallArguments) and e.index == start.index]
        functions.append({"name": start.name, "arguments": "".join(e.text for e in pieces)})
    return {
        "role": "assistant",
        "content": content,
        "reasoning_content": reasoning,
        "tool_calls": [{"type": "function", "function": function} for function in functions],
    }


def block(*calls):
    """A block of calls, each its name and the text between its tags."""
    invokes = "".join(
        f'<{DSML}invoke name="{name}">\n{body}</{DSML}invoke>\n' for name, body in calls
    )
    return f"\n\n<{DSML}tool_calls>\n{invokes}</{DSML}tool_calls>"


def parameter(key, value, *, is_text=True):
    """One parameter of a call."""
    flag = "true" if is_text else "false"
    return f'<{DSML}parameter name="{key}" string="{flag}">{value}</{DSML}parameter>\n'


def cuts(text, places):
    """The text cut at these places."""
    places = sorted(places)
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
