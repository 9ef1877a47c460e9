"""Log-probabilities in the older format, that of completions; they are those of the model's raw logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from dsv4_trt.runtime.sampling.row_state import SampledToken
from dsv4_trt.runtime.server.openai.token_names import finite, token_name
from dsv4_trt.runtime.text.detokenizer import IncrementalDetokenizer
from dsv4_trt.runtime.text.tokenizer import Tokenizer


class TextLogprobs(BaseModel):
    """Lists with an item for each generated token; one whose bytes are no text has a name in escapes."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class TextLogprobWriter:
    """Writes the `TextLogprobs` of one sequence as its tokens come.

    An offset is where the token begins in the text, in characters. Tokens inside one character begin where
    it does.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._text = IncrementalDetokenizer(tokenizer)
        self._offset = 0

    def write(self, tokens: Sequence[SampledToken], *, has_top: bool) -> dict[str, Any]:
        """Plain JSON data for the next tokens."""
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(self._text.push(token.token_id))
        return {
            "tokens": [self._name(token.token_id) for token in tokens],
            "token_logprobs": [finite(token.logprob) for token in tokens],
            "top_logprobs": [self._best(token) for token in tokens] if has_top else None,
            "text_offset": offsets,
        }

    def _best(self, token: SampledToken) -> dict[str, float]:
        """The best tokens by name, and the chosen one where it is none of them."""
        best = {self._name(token_id): finite(logprob) for token_id, logprob in token.top}
        return best | {self._name(token.token_id): finite(token.logprob)}

    def _name(self, token_id: int) -> str:
        return token_name(self._tokenizer.token_bytes(token_id), "bytes:")
