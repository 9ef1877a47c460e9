"""A plain completion while it runs: text and tokens, as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

from dsv4_trt.runtime.sampling.row_state import SampledToken
from dsv4_trt.runtime.server.served import Served
from dsv4_trt.runtime.server.start_request import in_thread_if_long, start_request
from dsv4_trt.runtime.server.token_stream import TokenStream
from dsv4_trt.runtime.text.prompt import encode_text
from dsv4_trt.runtime.update import Update


@dataclass(slots=True, kw_only=True)
class TextDelta:
    """News of one sequence, or all of it."""

    index: int
    text: str = ""
    tokens: list[SampledToken] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # what each token completed
    finish_reason: str | None = None  # stop, length, cancelled, timeout; None: it goes on
    stop_reason: str | int | None = None

    def take(self, other: TextDelta) -> None:
        """Append later news of the same sequence."""
        self.text += other.text
        self.tokens += other.tokens
        self.texts += other.texts
        self.finish_reason = other.finish_reason or self.finish_reason
        self.stop_reason = self.stop_reason if other.stop_reason is None else other.stop_reason


class TextRun:
    """The `n` sequences that continue one prompt; iterated like a `ChatRun`."""

    reasoning_tokens = 0  # text is just text

    def __init__(self, stream: TokenStream) -> None:
        self._stream = stream
        self.prompt_ids = list(stream.request.prompt_ids)
        self.completion_tokens = 0
        self._open = set(range(stream.request.params.n))

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt_ids)

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that were in the prefix cache."""
        return self._stream.cached_tokens

    def cancel(self) -> None:
        """End the run at the executor's next step; nothing happens if it has ended."""
        self._stream.cancel()

    async def __aiter__(self) -> AsyncIterator[list[TextDelta]]:
        while updates := await self._stream.read():
            yield [*self._take(updates)]
        if self._stream.error is not None:
            raise self._stream.error

    async def whole(self) -> list[TextDelta]:
        """Wait for the end: all of each sequence."""
        found = [TextDelta(index=index) for index in range(self._stream.request.params.n)]
        async for deltas in self:
            for delta in deltas:
                found[delta.index].take(delta)
        return found

    def _take(self, updates: list[Update]) -> Iterable[TextDelta]:
        news: dict[int, TextDelta] = {}
        for update in updates:
            delta = news.setdefault(update.index, TextDelta(index=update.index))
            delta.take(_delta(update))
            if update.finish_reason is not None:
                self._open.discard(update.index)
        if updates[-1].finished:
            for index in self._open:  # those that never began end as the last one did
                news[index] = TextDelta(index=index, finish_reason=updates[-1].finish_reason)
        self.completion_tokens += sum(len(delta.tokens) for delta in news.values())
        return news.values()


def _delta(update: Update) -> TextDelta:
    has_token = update.token is not None
    return TextDelta(
        index=update.index,
        text=update.text,
        tokens=[update.token] if update.token is not None else [],
        texts=[update.text] if has_token else [],
        finish_reason=update.finish_reason,
        stop_reason=update.stop_reason,
    )


async def start_text(
    served: Served,
    prompt: str | list[int],
    sampling: dict[str, Any],
    *,
    max_tokens: int | None,
    **options: Any,
) -> TextRun:
    """Continue a text, after a begin-of-sentence token, or token ids as they are; see `start_request`."""
    served.check_open()
    if isinstance(prompt, str):
        text = prompt
        prompt = await in_thread_if_long(
            len(text), lambda: encode_text(text, served.info.spec, served.tokenizer)
        )
    stream = await start_request(
        served, prompt, sampling, max_tokens=max_tokens, parameter="prompt", **options
    )
    return TextRun(stream)
