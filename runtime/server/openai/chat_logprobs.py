"""Log-probabilities in the format of chat completions; they are those of the model's raw logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from dsv4_trt.runtime.sampling.row_state import SampledToken
from dsv4_trt.runtime.server.openai.reasoning_split import ReasoningSplit
from dsv4_trt.runtime.server.openai.token_names import escaped, finite, text_of
from dsv4_trt.runtime.text.tokenizer import Tokenizer


class TopLogprob(BaseModel):
    """One of the most likely tokens; `token` is in escapes where its bytes are no text."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    """A generated token, and the most likely ones in its place."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    """Every generated token once, in order: up to `</think>` under reasoning, all others under content."""

    content: list[TokenLogprob]
    reasoning_content: list[TokenLogprob] | None = None
    refusal: None


class ChatLogprobWriter:
    """Writes the `ChatLogprobs` of an answer's sequences as their tokens come."""

    def __init__(self, tokenizer: Tokenizer, splits: list[ReasoningSplit]) -> None:
        self._tokenizer, self._splits = tokenizer, splits

    def write(self, index: int, tokens: Sequence[SampledToken]) -> dict[str, Any]:
        """Plain JSON data for the next tokens of a sequence."""
        reasoning, content = self._splits[index].split(tokens)
        found: dict[str, Any] = {"content": [self._token(t) for t in content], "refusal": None}
        if reasoning:
            found["reasoning_content"] = [self._token(t) for t in reasoning]
        return found

    def _token(self, token: SampledToken) -> dict[str, Any]:
        best = [self._named(token_id, logprob) for token_id, logprob in token.top]
        return self._named(token.token_id, token.logprob) | {"top_logprobs": best}

    def _named(self, token_id: int, logprob: float) -> dict[str, Any]:
        raw = self._tokenizer.token_bytes(token_id)
        text = text_of(raw)
        return {
            "token": escaped(raw) if text is None else text,
            "logprob": finite(logprob),
            "bytes": list(raw),
        }
