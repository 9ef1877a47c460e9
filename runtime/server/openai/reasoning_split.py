"""Which tokens of a sequence are reasoning: all up to `</think>`, where the prompt opened `<think>`."""

from __future__ import annotations

from collections.abc import Sequence

from dsv4_trt.runtime.sampling.row_state import SampledToken

Tokens = Sequence[SampledToken]


class ReasoningSplit:
    """Follows one sequence."""

    def __init__(self, end_think: int, *, is_open: bool) -> None:
        self._end_think = end_think
        self._is_open = is_open

    def split(self, tokens: Tokens) -> tuple[Tokens, Tokens]:
        """The next tokens in two parts: reasoning, `</think>` included, and the rest."""
        end = self._end(tokens) if self._is_open else 0
        return tokens[:end], tokens[end:]

    def _end(self, tokens: Tokens) -> int:
        for i, token in enumerate(tokens, 1):
            if token.token_id == self._end_think:
                self._is_open = False
                return i
        return len(tokens)
