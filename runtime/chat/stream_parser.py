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
from collections import deque
from collections.abc import Generator, Iterable
from typing import TypeVar

from dsv4_trt.runtime.chat.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Event,
    Reasoning,
)
from dsv4_trt.runtime.chat.marker_lexer import Lexeme, MarkerLexer
from dsv4_trt.runtime.chat.markers import BLOCK_LEAD, DSML, END_THINK, KEY_END, NAME_END, THINK

_THINK, _END_THINK, _DSML = (Lexeme(m, is_marker=True) for m in (THINK, END_THINK, DSML))
T = TypeVar("T")
Steps = Generator[None, None, T]  # a part of the parse: pauses where it needs more text


class _Broken(Exception):
    """What comes next is not what the format has here."""


class _Cut(Exception):
    """The output ends here."""


class StreamParser:
    """Reads one output. `thinking`: it begins inside the reasoning. `calls` false: no tool calls in it.

    Costs a bounded time per character and holds back only what may be part of a tag.
    """

    def __init__(self, thinking: bool, *, calls: bool = True) -> None:
        self._thinking = thinking
        self._with_calls = calls
        self._lexer = MarkerLexer()
        self._lexemes: deque[Lexeme] = deque()
        self._is_finished = False
        self._events: list[Event] = []
        self._source: list[str] = []  # what was read and no event tells yet
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
        self._lexemes.extend(self._lexer.push(text, marks))
        return self._read()

    def finish(self) -> list[Event]:
        """Take the end of the output: what was held back is decided."""
        if self._is_finished:
            return []
        held = self._lexer.finish()
        self._lexemes.extend(held if not self._in_call else ())
        self._is_finished = True
        return self._read()

    def _read(self) -> list[Event]:
        next(self._parse, None)
        events, self._events = self._events, []
        return events

    def _next(self) -> Steps[Lexeme]:
        while not self._lexemes:
            if self._is_finished:
                raise _Cut
            yield
        return self._lexemes.popleft()

    def _output(self) -> Steps[None]:
        try:
            if self._thinking:
                yield from self._reasoning()
            while True:
                yield from self._content()
                yield from self._block()
        except _Cut:
            if not self._in_call:
                self._tell_content("".join(self._source))

    def _reasoning(self) -> Steps[None]:
        is_first = True
        while (lexeme := (yield from self._next())) != _END_THINK:
            if not is_first or lexeme != _THINK:
                self._events.append(Reasoning(lexeme.text))
            is_first = False

    def _content(self) -> Steps[None]:
        """Up to the marker that opens a block, whose beginning stays in the source."""
        while True:
            content, lead = _split_end("".join(self._source), BLOCK_LEAD)
            self._tell_content(content)
            self._source = [lead]
            lexeme = yield from self._next()
            self._source.append(lexeme.text)
            if lead == BLOCK_LEAD and lexeme == _DSML and self._with_calls:
                return

    def _block(self) -> Steps[None]:
        """After the marker that opens a block, to its end; or to where it is broken."""
        try:
            yield from self._literal("tool_calls>\n")
            while not (yield from self._closes()):
                yield from self._call()
                yield from self._literal("\n")
            yield from self._literal("tool_calls>")
            self._source.clear()
        except _Broken:
            pass
        self._in_call = False

    def _call(self) -> Steps[None]:
        yield from self._literal('invoke name="')
        name = yield from self._until(NAME_END)
        index = self._num_calls
        self._tell(CallStart(index, name))
        self._in_call = True
        self._num_calls += 1
        yield from self._maybe("\n")
        keys: set[str] = set()
        end = ""
        while not (yield from self._closes()):
            end = yield from self._parameter(index, keys, end)
        yield from self._literal("invoke>")
        self._tell(CallArguments(index, end + "}" if keys else "{}"))
        self._tell(CallEnd(index))

    def _parameter(self, index: int, keys: set[str], end: str) -> Steps[str]:
        """One parameter after the marker of its tag.

        `end` is what closes the value before it, the result what will close its own.
        """
        yield from self._literal('parameter name="')
        key = yield from self._until(KEY_END)
        kind = yield from self._until('">')
        if kind not in ("true", "false") or key in keys:
            raise _Broken
        lead = f"{end}, " if keys else "{"
        keys.add(key)
        is_text = kind == "true"
        quote = '"' if is_text else ""
        self._tell(CallArguments(index, f"{lead}{json.dumps(key, ensure_ascii=False)}: {quote}"))
        yield from self._value(index, is_text)
        yield from self._literal(">\n")
        return quote

    def _value(self, index: int, is_text: bool) -> Steps[None]:
        """A value up to and with `</｜DSML｜parameter`, which stays in the source."""
        while True:
            value, lead = _split_end("".join(self._source), "</")
            if value:
                shown = json.dumps(value, ensure_ascii=False)[1:-1] if is_text else value
                self._events.append(CallArguments(index, shown))
            self._source = [lead]
            lexeme = yield from self._next()
            self._source.append(lexeme.text)
            if lead == "</" and lexeme == _DSML:
                try:
                    return (yield from self._literal("parameter"))
                except _Broken:
                    pass  # it is a part of the value

    def _closes(self) -> Steps[bool]:
        """Read `<` or `</` and the marker of a tag; whether it is a closing one."""
        yield from self._literal("<")
        is_closing = yield from self._maybe("/")
        lexeme = yield from self._next()
        if lexeme != _DSML:
            self._lexemes.appendleft(lexeme)
            raise _Broken
        self._source.append(lexeme.text)
        return is_closing

    def _literal(self, expected: str) -> Steps[None]:
        """Read exactly this text, with no marker in it."""
        while expected:
            lexeme = yield from self._next()
            length = min(len(expected), len(lexeme.text))
            if lexeme.is_marker or lexeme.text[:length] != expected[:length]:
                self._lexemes.appendleft(lexeme)
                raise _Broken
            self._source.append(lexeme.text[:length])
            self._put_back(lexeme.text[length:])
            expected = expected[length:]

    def _maybe(self, char: str) -> Steps[bool]:
        """Read this character if it is the next one; whether it was."""
        lexeme = yield from self._next()
        self._lexemes.appendleft(lexeme)
        if lexeme.is_marker or lexeme.text[0] != char:
            return False
        yield from self._literal(char)
        return True

    def _until(self, end: str) -> Steps[str]:
        """Read text, with no marker in it, to the first `end`; the text before it."""
        pieces: list[str] = []
        tail = ""  # the last characters of the pieces, where `end` may have begun
        while True:
            lexeme = yield from self._next()
            if lexeme == _DSML:
                self._lexemes.appendleft(lexeme)
                raise _Broken
            window = tail + lexeme.text
            at = window.find(end)
            if at >= 0:
                rest = window[at + len(end) :]
                taken = lexeme.text[: len(lexeme.text) - len(rest)]
                self._put_back(rest)
                self._source.append(taken)
                return "".join([*pieces, taken])[: -len(end)]
            self._source.append(lexeme.text)
            pieces.append(lexeme.text)
            tail = window[1 - len(end) :]

    def _put_back(self, text: str) -> None:
        if text:
            self._lexemes.appendleft(Lexeme(text))

    def _tell(self, event: Event) -> None:
        self._source.clear()
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
