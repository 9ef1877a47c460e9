"""Log-probabilities in the format of chat completions; they are those of the model's raw logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from dsv4_trt.runtime.sampling.row_state import SampledToken
from dsv4_trt.runtime.server.openai.token_names import finite, token_name
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
    """Writes `ChatLogprobs`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def write(self, tokens: Sequence[SampledToken], num_reasoning: int) -> dict[str, Any]:
        """Plain JSON data for tokens of which the first `num_reasoning` are reasoning."""
        reasoning, content = tokens[:num_reasoning], tokens[num_reasoning:]
        found: dict[str, Any] = {"content": [self._token(t) for t in content], "refusal": None}
        if reasoning:
            found["reasoning_content"] = [self._token(t) for t in reasoning]
        return found

    def _token(self, token: SampledToken) -> dict[str, Any]:
        best = [self._named(token_id, logprob) for token_id, logprob in token.top]
        return self._named(token.token_id, token.logprob) | {"top_logprobs": best}

    def _named(self, token_id: int, logprob: float) -> dict[str, Any]:
        raw = self._tokenizer.token_bytes(token_id)
        return {
            "token": token_name(raw),
            "logprob": finite(logprob),
            "bytes": list(raw),
        }
