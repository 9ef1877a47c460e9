"""Finds where a sequence's text ends: at a stop string or at a token that stops it.

A stop string may lie across any number of tokens. Text that could be the beginning of one is held back
until it is decided. Of several stop strings the one that is complete first wins, the longer one if two
end together, so that the result does not depend on where tokens begin and end.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopChecker:
    """Follows one sequence; `matched` is the stop string or token id that ended it.

    For each token call `ends`, then `show` with the text it completed, unless it ended the sequence;
    then, or when no more tokens will come, `finish`. Within the first `min_tokens` tokens nothing
    stops the sequence, and no stop string begins.
    """

    def __init__(
        self, *, stop: Sequence[str] = (), stop_ids: Sequence[int] = (), min_tokens: int = 0
    ) -> None:
        self._stop = tuple(stop)
        self._stop_ids = frozenset(stop_ids)
        self._min_tokens = min_tokens
        self._num_tokens = 0
        self._held = ""
        self.matched: str | int | None = None

    def ends(self, token_id: int) -> bool:
        """Take the next token; whether it ends the sequence, in which case its text is not shown."""
        assert self.matched is None, f"token {token_id} after the stop {self.matched!r}"
        self._num_tokens += 1
        if self._num_tokens > self._min_tokens and token_id in self._stop_ids:
            self.matched = token_id
            return True
        return False

    def show(self, text: str) -> str:
        """Take the next text; return what is safe to show: nothing from a stop string on."""
        return self._take(text) if self._num_tokens > self._min_tokens else text

    def finish(self, text: str = "") -> str:
        """Take the last text and release what was held back."""
        if isinstance(self.matched, str):
            return ""
        text = self._take(text) + self._held if self.matched is None else self._held + text
        self._held = ""
        return text

    def _take(self, text: str) -> str:
        text = self._held + text
        found = [(at + len(s), at, s) for s in self._stop if (at := text.find(s)) >= 0]
        if found:
            _, at, self.matched = min(found)
            self._held = ""
            return text[:at]
        self._held = text[len(text) - self._undecided(text) :]
        return text[: len(text) - len(self._held)]

    def _undecided(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        longest = max(map(len, self._stop), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(s.startswith(text[-length:]) for s in self._stop):
                return length
        return 0
