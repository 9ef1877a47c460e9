"""The runs of a completion request, one for each of its prompts, as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.server.openai.completions_request import CompletionRequest
from dsv4_trt.runtime.server.served import Served
from dsv4_trt.runtime.server.text_run import TextDelta, TextRun, start_text
from dsv4_trt.runtime.text.surrogates import check_unicode

News = list[TextDelta]


class TextRuns:
    """Iterated like a `TextRun`; the sequences of all prompts are numbered through."""

    reasoning_tokens = 0

    def __init__(self, runs: list[TextRun], num_each: int) -> None:
        self._runs, self._num_each = runs, num_each

    @staticmethod
    async def start(served: Served, body: CompletionRequest) -> TextRuns:
        """Start all, or none: raises what `start_text` does."""
        options = body.options()
        prompts = body.prompts()
        _check_number(len(prompts) * (body.n or 1), served.config.max_queue_size)
        runs: list[TextRun] = []
        try:
            for prompt in prompts:
                if isinstance(prompt, str):
                    check_unicode(prompt, "prompt")
                runs.append(await start_text(served, prompt, **options))
        except BaseException:
            for run in runs:
                run.cancel()
            raise
        return TextRuns(runs, body.n or 1)

    def prompt_ids(self, index: int) -> list[int]:
        """Token ids of the prompt that sequence `index` continues."""
        return self._runs[index // self._num_each].prompt_ids

    @property
    def num_sequences(self) -> int:
        """Sequences of all prompts."""
        return len(self._runs) * self._num_each

    def cancel(self) -> None:
        """End all at the next step."""
        for run in self._runs:
            run.cancel()

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(run.prompt_tokens for run in self._runs)

    @property
    def cached_tokens(self) -> int:
        """Those of them that were in the prefix cache."""
        return sum(run.cached_tokens for run in self._runs)

    @property
    def completion_tokens(self) -> int:
        """Tokens of all sequences so far."""
        return sum(run.completion_tokens for run in self._runs)

    async def whole(self) -> News:
        """Wait for the end: all of each sequence, in order."""
        found = [await run.whole() for run in self._runs]
        return [d for number, deltas in enumerate(found) for d in self._numbered(number, deltas)]

    async def __aiter__(self) -> AsyncIterator[News]:
        iterators = [aiter(run) for run in self._runs]
        waiting = {asyncio.ensure_future(_next(it)): i for i, it in enumerate(iterators)}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    number = waiting.pop(task)
                    news = task.result()
                    if news is not None:
                        waiting[asyncio.ensure_future(_next(iterators[number]))] = number
                        yield self._numbered(number, news)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def _numbered(self, number: int, deltas: News) -> News:
        first = number * self._num_each
        return [replace(delta, index=first + delta.index) for delta in deltas]


def _check_number(asked: int, most: int) -> None:
    """Raise `RequestError` for sequences that the queue can never hold together."""
    if asked > most:
        raise RequestError(
            f"{asked} sequences are asked for at once and the queue holds {most}; send fewer prompts "
            "in a request, or raise --max_queue_size",
            parameter="prompt",
        )


async def _next(iterator: AsyncIterator[News]) -> News | None:
    return await anext(iterator, None)
