"""A model's output to events while it comes, the same for every way to cut it; it never raises.

Where the strict parser accepts the output, the events are its message. Otherwise:

* Output that ends early. Without `</think>` all of it is reasoning. A block of calls cut before its first
  call's name is complete is content. A call cut later has no `CallEnd` and no closing brace; the
  beginning of a tag that was cut with it is dropped, as is the end of a block after a whole call.
* Broken calls (a parameter twice, a tag that is none, anything between calls). What was read stands, the
  call has no `CallEnd` and no closing brace, and from the broken tag on all is content.
* Text after a block is content, and a further block adds calls.
* A block that does not stand after an empty line, or in the reasoning, is text there.
* `<think>` that opens the reasoning again is dropped; any other stray marker is text.
* A DSML marker inside a value, other than that of its closing tag, belongs to the value.
* Names of tools are not checked: who runs the tools answers a call of an unknown one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress

from dsv4_trt.runtime.chat.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Event,
    Reasoning,
)
from dsv4_trt.runtime.chat.marker_lexer import Lexeme, MarkerLexer
from dsv4_trt.runtime.chat.markers import BLOCK_LEAD, END_THINK, KEY_END, NAME_END, THINK
from dsv4_trt.runtime.chat.tag_reader import DSML_MARKER, Broken, Cut, Steps, TagReader

_THINK, _END_THINK = Lexeme(THINK, is_marker=True), Lexeme(END_THINK, is_marker=True)


class StreamParser:
    """Reads one output. `thinking`: it begins inside the reasoning. `calls` false: no tool calls in it.

    Costs a bounded time per character and holds back only what may be part of a tag.
    """

    def __init__(self, thinking: bool, *, calls: bool = True) -> None:
        self._thinking = thinking
        self._with_calls = calls
        self._lexer = MarkerLexer()
        self._reader = TagReader()
        self._is_finished = False
        self._events: list[Event] = []
        self._num_calls = 0
        self._in_call = False  # a call of the block that is being read has started
        self._parse = self._output()
        next(self._parse)

    def push(self, text: str, marks: Iterable[int] | None = None) -> list[Event]:
        """Take the next text.

        `marks` are ascending character offsets in the whole output at which a token that is a marker
        begins; they may come before their text, never after it, and again. Give an empty list where
        there is none: without marks a marker is one wherever it is spelled.
        """
        assert not self._is_finished, "text after the end of the output"
        self._reader.push(self._lexer.push(text, marks))
        return self._go_on()

    def finish(self) -> list[Event]:
        """Take the end of the output: what was held back is decided."""
        if self._is_finished:
            return []
        self._is_finished = True
        held = self._lexer.finish()
        if not self._in_call:
            self._reader.push(held)
        self._reader.finish()
        return self._go_on()

    def _go_on(self) -> list[Event]:
        next(self._parse, None)
        events, self._events = self._events, []
        return events

    def _output(self) -> Steps[None]:
        try:
            if self._thinking:
                yield from self._reasoning()
            while True:
                yield from self._content()
                yield from self._block()
        except Cut:
            if not self._in_call:
                self._tell_content("".join(self._reader.source))

    def _reasoning(self) -> Steps[None]:
        is_first = True
        while (lexeme := (yield from self._reader.take())) != _END_THINK:
            self._reader.source.clear()
            if not is_first or lexeme != _THINK:
                self._events.append(Reasoning(lexeme.text))
            is_first = False
        self._reader.source.clear()

    def _content(self) -> Steps[None]:
        """Up to the marker that opens a block, which stays in the source with what leads to it."""
        reader = self._reader
        while True:
            content, lead = _split_end("".join(reader.source), BLOCK_LEAD)
            self._tell_content(content)
            reader.source = [lead]
            lexeme = yield from reader.take()
            if lead == BLOCK_LEAD and lexeme == DSML_MARKER and self._with_calls:
                return

    def _block(self) -> Steps[None]:
        """After the marker that opens a block, to its end; or to where it is broken."""
        reader = self._reader
        try:
            yield from reader.literal("tool_calls>\n")
            while not (yield from reader.closes()):
                yield from self._call()
                yield from reader.literal("\n")
            yield from reader.literal("tool_calls>")
            reader.source.clear()
        except Broken:
            pass
        self._in_call = False

    def _call(self) -> Steps[None]:
        reader = self._reader
        yield from reader.literal('invoke name="')
        name = yield from reader.until(NAME_END)
        index = self._num_calls
        self._tell(CallStart(index, name))
        self._in_call = True
        self._num_calls += 1
        yield from reader.maybe("\n")
        keys: set[str] = set()
        end = ""
        while not (yield from reader.closes()):
            end = yield from self._parameter(index, keys, end)
        yield from reader.literal("invoke>")
        self._tell(CallArguments(index, end + "}" if keys else "{}"))
        self._tell(CallEnd(index))

    def _parameter(self, index: int, keys: set[str], end: str) -> Steps[str]:
        """One parameter after the marker of its tag.

        `end` is what closes the value before it, the result what will close its own.
        """
        reader = self._reader
        yield from reader.literal('parameter name="')
        key = yield from reader.until(KEY_END)
        kind = yield from reader.until('">')
        if kind not in ("true", "false") or key in keys:
            raise Broken
        lead = f"{end}, " if keys else "{"
        keys.add(key)
        quote = '"' if kind == "true" else ""
        self._tell(CallArguments(index, f"{lead}{json.dumps(key, ensure_ascii=False)}: {quote}"))
        yield from self._value(index, is_text=kind == "true")
        yield from reader.literal(">\n")
        return quote

    def _value(self, index: int, *, is_text: bool) -> Steps[None]:
        """A value up to and with `</｜DSML｜parameter`, which stays in the source."""
        reader = self._reader
        while True:
            value, lead = _split_end("".join(reader.source), "</")
            if value:
                shown = json.dumps(value, ensure_ascii=False)[1:-1] if is_text else value
                self._events.append(CallArguments(index, shown))
            reader.source = [lead]
            lexeme = yield from reader.take()
            if lead == "</" and lexeme == DSML_MARKER:
                with suppress(Broken):  # then it is a part of the value
                    return (yield from reader.literal("parameter"))

    def _tell(self, event: Event) -> None:
        self._reader.source.clear()
        self._events.append(event)

    def _tell_content(self, text: str) -> None:
        if text:
            self._events.append(Content(text))


def _split_end(text: str, lead: str) -> tuple[str, str]:
    """The text, and how much of `lead` it ends in."""
    if text and text[-1] in lead:
        for length in range(len(lead), 0, -1):
            if text.endswith(lead[:length]):
                return text[:-length], text[-length:]
    return text, ""
