"""Reads an output's lexemes as they come, step by step: literals, names up to their end, tags."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from typing import TypeVar

from dsv4_trt.runtime.chat.marker_lexer import Lexeme
from dsv4_trt.runtime.chat.markers import DSML

T = TypeVar("T")
Steps = Generator[None, None, T]  # a part of a parse: pauses where it needs more of the output

DSML_MARKER = Lexeme(DSML, is_marker=True)


class Broken(Exception):
    """What comes next is not what the format has here; it stays unread."""


class Cut(Exception):
    """The output ends here."""


class TagReader:
    """`source` is what was read and not dealt with: whoever reads on clears it, or gives it back."""

    def __init__(self) -> None:
        self.source: list[str] = []
        self._lexemes: deque[Lexeme] = deque()
        self._is_finished = False

    def push(self, lexemes: Iterable[Lexeme]) -> None:
        """Append to what is to be read."""
        self._lexemes.extend(lexemes)

    def finish(self) -> None:
        """Nothing more will come: reading past the end raises `Cut`."""
        self._is_finished = True

    def take(self) -> Steps[Lexeme]:
        """The next lexeme, which goes into the source."""
        while not self._lexemes:
            if self._is_finished:
                raise Cut
            yield
        lexeme = self._lexemes.popleft()
        self.source.append(lexeme.text)
        return lexeme

    def literal(self, expected: str) -> Steps[None]:
        """Read exactly this text, with no marker in it."""
        while expected:
            lexeme = yield from self.take()
            length = min(len(expected), len(lexeme.text))
            if lexeme.is_marker or lexeme.text[:length] != expected[:length]:
                self._put_back(lexeme)
                raise Broken
            self._keep(lexeme, length)
            expected = expected[length:]

    def maybe(self, char: str) -> Steps[bool]:
        """Read this character if it is the next one; whether it was."""
        try:
            yield from self.literal(char)
        except Broken:
            return False
        return True

    def until(self, end: str) -> Steps[str]:
        """Read text to the first `end`, with no DSML marker in it; the text before `end`."""
        pieces: list[str] = []
        tail = ""  # the last characters of the pieces, where `end` may have begun
        while True:
            lexeme = yield from self.take()
            if lexeme == DSML_MARKER:
                self._put_back(lexeme)
                raise Broken
            window = tail + lexeme.text
            if (at := window.find(end)) >= 0:
                length = at + len(end) - len(tail)
                self._keep(lexeme, length)
                return "".join([*pieces, lexeme.text[:length]])[: -len(end)]
            pieces.append(lexeme.text)
            tail = window[1 - len(end) :]

    def closes(self) -> Steps[bool]:
        """Read `<` or `</` and the marker of a tag; whether it is a closing one."""
        yield from self.literal("<")
        is_closing = yield from self.maybe("/")
        lexeme = yield from self.take()
        if lexeme != DSML_MARKER:
            self._put_back(lexeme)
            raise Broken
        return is_closing

    def _put_back(self, lexeme: Lexeme) -> None:
        self.source.pop()
        self._lexemes.appendleft(lexeme)

    def _keep(self, lexeme: Lexeme, length: int) -> None:
        """Leave what is beyond this length of the lexeme that was read last to be read again."""
        if length < len(lexeme.text):
            self.source[-1] = lexeme.text[:length]
            self._lexemes.appendleft(Lexeme(lexeme.text[length:]))
