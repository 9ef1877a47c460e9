"""Cuts a model's output, as it comes, into text and markers.

With marks a marker is one only where a token for it was sampled; without, wherever it is spelled.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from dsv4_trt.runtime.chat.markers import DSML, END_THINK, EOS, THINK

_MARKERS = (THINK, END_THINK, DSML)
_SPELLED = re.compile("|".join(map(re.escape, _MARKERS)))
# every end of a text that may become a marker: a beginning of one, or a whole EOS, which the end drops
_BEGINNINGS = {m[:length] for m in (*_MARKERS, EOS) for length in range(1, len(m))} | {EOS}
_LONGEST = max(map(len, _BEGINNINGS))


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A stretch of text, or one marker; never empty."""

    text: str
    is_marker: bool = False


class MarkerLexer:
    """Holds back no more than what may be the beginning of a marker."""

    def __init__(self) -> None:
        self._held = ""
        self._start = 0  # offset of `_held` in the whole text
        self._marks: deque[int] = deque()  # ascending, not yet passed
        self._newest_mark = -1
        self._has_marks = False

    def push(self, text: str, marks: Iterable[int] | None) -> list[Lexeme]:
        """Take the next text, and ascending offsets in the whole text where marker tokens begin."""
        self._held += text
        if marks is not None:
            self._has_marks = True
            for mark in marks:
                if mark > self._newest_mark:
                    self._newest_mark = mark
                    self._marks.append(mark)
        return self._cut_at_marks() if self._has_marks else self._cut_where_spelled()

    def finish(self) -> list[Lexeme]:
        """What is still held; an end of sentence that ends the text is no part of it."""
        if not self._has_marks and self._held == EOS:
            return []
        return self._cut([], len(self._held))

    def _cut_where_spelled(self) -> list[Lexeme]:
        markers = [found.span() for found in _SPELLED.finditer(self._held)]
        rest = self._held[markers[-1][1] if markers else 0 :]
        lengths = range(min(_LONGEST, len(rest)), 0, -1)
        keep = next((n for n in lengths if rest[-n:] in _BEGINNINGS), 0)
        return self._cut(markers, len(self._held) - keep)

    def _cut_at_marks(self) -> list[Lexeme]:
        markers, end, passed = [], len(self._held), 0
        while self._marks and (at := self._marks[0] - self._start) <= end:
            found = _SPELLED.match(self._held, at) if at >= passed else None
            if found is not None:
                markers.append(found.span())
                passed = found.end()
            elif at >= passed and any(
                m.startswith(self._held[at : at + _LONGEST]) for m in _MARKERS
            ):
                end = at  # its text comes later
                break
            self._marks.popleft()
        return self._cut(markers, end)

    def _cut(self, markers: list[tuple[int, int]], end: int) -> list[Lexeme]:
        """Let go of what is held up to `end`, in which the markers have these places."""
        if not end:
            return []
        lexemes, at = [], 0
        for start, stop in [*markers, (end, end)]:
            if start > at:
                lexemes.append(Lexeme(self._held[at:start]))
            if stop > start:
                lexemes.append(Lexeme(self._held[start:stop], is_marker=True))
            at = stop
        self._held = self._held[end:]
        self._start += end
        return lexemes
