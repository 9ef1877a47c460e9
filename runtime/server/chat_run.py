"""A chat turn while it runs: updates of the engine become events of the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from dsv4_trt.runtime.chat.events import CallEnd
from dsv4_trt.runtime.chat.stream_parser import StreamParser
from dsv4_trt.runtime.sampling.row_state import SampledToken
from dsv4_trt.runtime.server.chat_answer import ChatAnswer, ChatDelta
from dsv4_trt.runtime.server.token_stream import TokenStream
from dsv4_trt.runtime.update import Update


class ChatRun:
    """The `n` sequences of one turn.

    Iterating gives, as soon as there is news, a `ChatDelta` for each sequence that has some; if the engine
    failed, its error is raised after the last. What came while nobody read is joined.
    """

    def __init__(
        self,
        stream: TokenStream,
        parsers: list[StreamParser],
        end_think: int | None,
        *,
        one_call: bool = False,
    ) -> None:
        """`end_think` is the id of `</think>`, None for an answer that does not begin with reasoning.

        With `one_call` a sequence ends after its first tool call.
        """
        self._stream = stream
        self.prompt_ids = list(stream.request.prompt_ids)
        self._sequences = [
            _Sequence(index, parser, end_think, one_call) for index, parser in enumerate(parsers)
        ]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt_ids)

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that were in the prefix cache."""
        return self._stream.cached_tokens

    @property
    def completion_tokens(self) -> int:
        """Tokens that were put out so far, by all sequences."""
        return sum(sequence.num_tokens for sequence in self._sequences)

    @property
    def reasoning_tokens(self) -> int:
        """Those of them that were put out before, and with, the end of thinking."""
        return sum(sequence.num_reasoning for sequence in self._sequences)

    def cancel(self) -> None:
        """End the turn at the executor's next step; nothing happens if it has ended."""
        self._stream.cancel()

    async def __aiter__(self) -> AsyncIterator[list[ChatDelta]]:
        while updates := await self._stream.read():
            deltas = [*self._take(updates)]
            if deltas:
                yield deltas
            if all(sequence.has_ended for sequence in self._sequences):
                self.cancel()  # some may have ended before the engine ended them
                break
        if self._stream.error is not None:
            raise self._stream.error

    async def whole(self) -> list[ChatAnswer]:
        """Wait for the end: an answer for each sequence."""
        news: list[list[ChatDelta]] = [[] for _ in self._sequences]
        async for deltas in self:
            for delta in deltas:
                news[delta.index].append(delta)
        return [ChatAnswer.join(index, deltas) for index, deltas in enumerate(news)]

    def _take(self, updates: list[Update]) -> Iterable[ChatDelta]:
        ends = updates[-1].finish_reason if updates[-1].finished else None
        news: dict[int, list[Update]] = {}
        for update in updates:
            news.setdefault(update.index, []).append(update)
        for sequence in self._sequences:
            own = news.get(sequence.index, [])
            if (own or ends) and not sequence.has_ended:
                yield sequence.take(own, ends)


class _Sequence:
    """One sequence: its parser, and what its usage counts."""

    def __init__(
        self, index: int, parser: StreamParser, end_think: int | None, one_call: bool
    ) -> None:
        self.index = index
        self.num_tokens = 0
        self.num_reasoning = 0
        self.has_ended = False
        self._parser = parser
        self._end_think = end_think  # None once it has come
        self._one_call = one_call
        self._has_call = False

    def take(self, updates: list[Update], ends: str | None) -> ChatDelta:
        """The news of these updates; a request that `ends` ends a sequence that never began as well."""
        text = "".join(update.text for update in updates)
        marks = [mark for update in updates for mark in update.marks]
        events = self._parser.push(text, marks)
        tokens = [update.token for update in updates if update.token is not None]
        reasoning = self._reasoning(tokens)
        self.num_tokens += len(tokens)
        self.num_reasoning += reasoning
        last = updates[-1] if updates else None
        reason = ends if last is None else last.finish_reason or ends
        if reason is not None:
            events += self._parser.finish()
        at = next((i for i, event in enumerate(events) if isinstance(event, CallEnd)), None)
        self._has_call = self._has_call or at is not None
        if self._one_call and at is not None:
            events, reason = events[: at + 1], "stop"
        self.has_ended = reason is not None
        return ChatDelta(
            index=self.index,
            events=events,
            tokens=tokens,
            num_reasoning=reasoning,
            finish_reason="tool_calls" if reason == "stop" and self._has_call else reason,
            stop_reason=None if last is None else last.stop_reason,
        )

    def _reasoning(self, tokens: list[SampledToken]) -> int:
        """How many of the next tokens are reasoning: all up to `</think>`, which is one of them."""
        if self._end_think is None:
            return 0
        for number, token in enumerate(tokens, 1):
            if token.token_id == self._end_think:
                self._end_think = None
                return number
        return len(tokens)
