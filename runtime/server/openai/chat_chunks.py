"""Writes a streamed chat completion: server-sent events from the news of a run.

For each sequence, in this order: a chunk with the role, chunks with what is new, a chunk with the reason to
finish. Then the usage, where it was asked for, and `[DONE]`. Log-probabilities and token ids ride on the
first chunk of their step; a step whose text is held back has a chunk for them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dsv4_trt.runtime.server.chat_answer import ChatDelta
from dsv4_trt.runtime.server.chat_run import ChatRun
from dsv4_trt.runtime.server.early_end import FINISHED, check_ended
from dsv4_trt.runtime.server.openai.answer_head import DONE, AnswerHead, EventWriter
from dsv4_trt.runtime.server.openai.chat_deltas import deltas
from dsv4_trt.runtime.server.openai.chat_logprobs import ChatLogprobWriter
from dsv4_trt.runtime.server.openai.stream_fields import StreamOptions
from dsv4_trt.runtime.server.openai.usage import usage

KIND = "chat.completion.chunk"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOptions:
    """What the chunks of a stream say besides their text."""

    num_choices: int
    logprobs: ChatLogprobWriter | None
    token_ids: bool
    usage: StreamOptions


class ChatChunks:
    """The stream of one run."""

    def __init__(self, head: AnswerHead, run: ChatRun, options: ChunkOptions) -> None:
        self._run, self._options = run, options
        self._events = EventWriter(head, KIND)

    async def events(self) -> AsyncIterator[str]:
        """The events, as text."""
        is_first = True
        async for news in self._run:
            begin = self._begin() if is_first else ""
            is_first = False
            if text := begin + "".join(self._step(news)):
                yield text
            for delta in news:
                if delta.finish_reason is not None:
                    check_ended(delta.finish_reason)
        if self._options.usage.include_usage:
            yield self._events.write({"choices": [], "usage": usage(self._run)})
        yield DONE

    def _begin(self) -> str:
        begin = {"role": "assistant", "content": ""}
        choices = [self._choice(i, begin) for i in range(self._options.num_choices)]
        first, *rest = [self._chunk(choice) for choice in choices]
        if self._options.token_ids:
            first["prompt_token_ids"] = self._run.prompt_ids
        return "".join(map(self._events.write, (first, *rest)))

    def _step(self, news: Sequence[ChatDelta]) -> Iterator[str]:
        for delta in news:
            for choice in self._choices(delta):
                yield self._events.write(self._chunk(choice))

    def _choices(self, delta: ChatDelta) -> list[dict[str, Any]]:
        extra = self._extra(delta)
        parts = deltas(delta.events)
        if extra and not parts:
            parts = [{}]
        choices = [self._choice(delta.index, part) for part in parts]
        if choices:
            choices[0] |= extra
        if delta.finish_reason in FINISHED:
            end = {"finish_reason": delta.finish_reason, "stop_reason": delta.stop_reason}
            choices.append(self._choice(delta.index, {}) | end)
        return choices

    def _extra(self, delta: ChatDelta) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        if delta.tokens and self._options.logprobs is not None:
            extra["logprobs"] = self._options.logprobs.write(delta.tokens, delta.num_reasoning)
        if delta.tokens and self._options.token_ids:
            extra["token_ids"] = [token.token_id for token in delta.tokens]
        return extra

    def _choice(self, index: int, delta: dict[str, Any]) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        chunk: dict[str, Any] = {"choices": [choice]}
        if self._options.usage.continuous_usage_stats:
            chunk["usage"] = usage(self._run)
        elif self._options.usage.include_usage:
            chunk["usage"] = None
        return chunk
