"""Writes a completion: in one piece, or as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from dsv4_trt.runtime.server.early_end import FINISHED, check_ended
from dsv4_trt.runtime.server.json_answer import aside_if_many
from dsv4_trt.runtime.server.openai.answer_head import DONE, AnswerHead, EventWriter
from dsv4_trt.runtime.server.openai.completions_request import CompletionRequest
from dsv4_trt.runtime.server.openai.stream_fields import StreamOptions
from dsv4_trt.runtime.server.openai.text_logprobs import TextLogprobWriter
from dsv4_trt.runtime.server.openai.text_runs import TextRuns
from dsv4_trt.runtime.server.openai.usage import usage
from dsv4_trt.runtime.server.text_run import TextDelta
from dsv4_trt.runtime.text.tokenizer import Tokenizer

KIND = "text_completion"


class CompletionAnswer:
    """The answer of one request, which is written once, in either way."""

    def __init__(
        self, head: AnswerHead, runs: TextRuns, body: CompletionRequest, tokenizer: Tokenizer
    ) -> None:
        self._head, self._runs, self._body = head, runs, body
        self._stream = body.stream_options or StreamOptions()
        self._echoes = _echoes(body, tokenizer)
        self._logprobs = [TextLogprobWriter(tokenizer) for _ in range(runs.num_sequences)]
        self._begun: set[int] = set()

    async def whole(self) -> dict[str, Any]:
        """The `Completion` as plain JSON data."""
        deltas = await self._runs.whole()
        _check_ends(deltas)
        choices = await aside_if_many(
            self._runs.completion_tokens, lambda: [self._choice(delta) for delta in deltas]
        )
        return self._head.of(KIND) | {"choices": choices, "usage": usage(self._runs)}

    async def events(self) -> AsyncIterator[str]:
        """The events of a stream: a chunk for each sequence and step, the usage if wanted, `[DONE]`."""
        write = EventWriter(self._head, KIND).write
        async for deltas in self._runs:
            chunks = [self._chunk(delta) for delta in deltas if self._is_news(delta)]
            if chunks:
                yield "".join(map(write, chunks))
            _check_ends(deltas)
        if self._stream.include_usage:
            yield write({"choices": [], "usage": usage(self._runs)})
        yield DONE

    def _is_news(self, delta: TextDelta) -> bool:
        """Whether a chunk says something: text may be held back."""
        told = self._body.logprobs is not None or self._body.return_token_ids
        has_ended = delta.finish_reason in FINISHED
        return bool(delta.text or has_ended or (told and delta.tokens))

    def _chunk(self, delta: TextDelta) -> dict[str, Any]:
        chunk: dict[str, Any] = {"choices": [self._choice(delta)]}
        if self._stream.continuous_usage_stats:
            chunk["usage"] = usage(self._runs)
        elif self._stream.include_usage:
            chunk["usage"] = None
        return chunk

    def _choice(self, delta: TextDelta) -> dict[str, Any]:
        index, body = delta.index, self._body
        is_first = index not in self._begun
        self._begun.add(index)
        echo = self._echoes[index // (body.n or 1)] if is_first else ""
        choice: dict[str, Any] = {
            "index": index,
            "text": echo + delta.text,
            "logprobs": None,
            "finish_reason": delta.finish_reason if delta.finish_reason in FINISHED else None,
            "stop_reason": delta.stop_reason,
        }
        if body.logprobs is not None:
            writer = self._logprobs[index]
            choice["logprobs"] = writer.write(delta.tokens, has_top=body.logprobs > 0)
        if body.return_token_ids:
            choice["token_ids"] = [token.token_id for token in delta.tokens]
            if is_first:
                choice["prompt_token_ids"] = self._runs.prompt_ids(index)
        return choice


def _check_ends(deltas: list[TextDelta]) -> None:
    """Raise `Refusal` for a sequence that the server ended."""
    for delta in deltas:
        if delta.finish_reason is not None:
            check_ended(delta.finish_reason)


def _echoes(body: CompletionRequest, tokenizer: Tokenizer) -> list[str]:
    """What each prompt's sequences begin with."""
    if not body.echo:
        return [""] * len(body.prompts())
    return [
        prompt if isinstance(prompt, str) else tokenizer.decode(prompt, skip_special=True)
        for prompt in body.prompts()
    ]
