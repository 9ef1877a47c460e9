"""A client's handle of one request: filled by the executor's thread, read by any thread or event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import suppress
from threading import Condition
from typing import Literal, TypeVar

from dsv4_trt.errors import Dsv4Error
from dsv4_trt.runtime.completion_output import CompletionOutput
from dsv4_trt.runtime.request import FinishReason, Request
from dsv4_trt.runtime.update import Update

T = TypeVar("T")
Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class RequestOutput:
    """What a request has brought so far.

    A streaming request is iterated, with `for` or `async for`: each round is one step of it, which the
    `_diff` of its outputs show, and nothing moves between rounds. Any other fills up by itself, and
    gives one round, at its end. If a sequence ended with an error, `result` and the iteration raise it
    once the request has ended. A task that is cancelled while it waits does not end the request;
    `abort` does.
    """

    def __init__(
        self,
        request: Request,
        cancel: Callable[[str], None],
        *,
        prompt: str | None = None,
        streaming: bool = False,
    ) -> None:
        self.request_id = request.request_id
        self.prompt = prompt  # None where token ids were given
        self.prompt_token_ids: Sequence[int] = request.prompt_ids
        self.streaming = streaming
        self.cached_tokens = 0  # prompt tokens that were in the prefix cache
        self.finished = False
        wanted = request.params.logprobs is not None
        self.outputs = [CompletionOutput(i, wanted) for i in range(request.params.n)]
        self._cancel: Callable[[str], None] | None = cancel
        self._changed = Condition()
        self._news: deque[list[Update]] = deque()  # steps that are not in `outputs` yet
        self._is_shown = False  # the end has been yielded
        self._waiters: list[Waiter] = []

    @property
    def error(self) -> Dsv4Error | None:
        """The first error that ended a sequence."""
        return next((output.error for output in self.outputs if output.error is not None), None)

    def abort(self) -> None:
        """End the request at the next step, as "cancelled"; nothing happens if it has ended."""
        cancel = self._cancel
        if cancel is not None:
            cancel(self.request_id)

    def result(self, timeout: float | None = None) -> RequestOutput:
        """Wait for the end; raises `TimeoutError` after `timeout` seconds, and the request goes on."""
        with self._changed:
            if not self._changed.wait_for(self._take_all, timeout):
                raise TimeoutError(
                    f"request '{self.request_id}' has not ended in {timeout} s; it goes on, wait "
                    "again or abort it"
                )
        return self._whole()

    async def aresult(self) -> RequestOutput:
        """`result` for a coroutine."""
        await self._wait(self._take_all)
        return self._whole()

    def __await__(self) -> Generator[object, None, RequestOutput]:
        return self.aresult().__await__()

    def __iter__(self) -> Iterator[RequestOutput]:
        return self

    def __next__(self) -> RequestOutput:
        with self._changed:
            moved = self._changed.wait_for(self._move)
        if moved == "end":
            raise StopIteration
        return self._whole() if self.finished else self

    def __aiter__(self) -> AsyncIterator[RequestOutput]:
        return self

    async def __anext__(self) -> RequestOutput:
        if await self._wait(self._move) == "end":
            raise StopAsyncIteration
        return self._whole() if self.finished else self

    def deliver(self, updates: list[Update]) -> None:
        """Take the news of one step; called by the executor's thread."""
        with self._changed:
            self._news.append(updates)
            if any(update.finished for update in updates):
                self._cancel = None  # who keeps results does not keep the engine
            if not self.streaming and not self._take_all():
                return  # nobody waits for less than the end
            self._changed.notify_all()
            waiters, self._waiters = self._waiters, []
        for loop, future in waiters:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_wake, future)

    def end(self, reason: FinishReason, error: Dsv4Error | None = None) -> None:
        """End all sequences that have not ended; called by the executor's thread when it stops."""
        last = self.outputs[-1]
        self.deliver(
            [
                Update(
                    request_id=self.request_id,
                    index=output.index,
                    finish_reason=reason,
                    error=error,
                    finished=output is last,
                )
                for output in self.outputs
            ]
        )

    def _take_all(self) -> bool:
        """Bring `outputs` up to date; whether that is the end."""
        while self._news:
            self._take(self._news.popleft())
        return self.finished

    def _take(self, updates: list[Update]) -> None:
        for update in updates:
            self.outputs[update.index].take(update)
            if update.index == 0 and update.num_cached is not None:  # it computed the prompt
                self.cached_tokens = update.num_cached
            if update.finished:
                self.finished = True
                for output in self.outputs:  # those that never began end as the last one did
                    output.finish_reason = output.finish_reason or update.finish_reason

    def _move(self) -> Literal["round", "end"] | None:
        """Go on by one round; None if it is not there yet."""
        if self._is_shown:
            return "end"
        if self._news:
            for output in self.outputs:
                output.num_seen = output.length
            self._take(self._news.popleft())
        elif not self.finished:
            return None
        self._is_shown = self.finished
        return "round"

    def _whole(self) -> RequestOutput:
        self._is_shown = True
        if self.error is not None:
            raise self.error
        return self

    async def _wait(self, ready: Callable[[], T]) -> T:
        """Wait until `ready`, called under the lock, gives something true."""
        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                found = ready()
                if found:
                    return found
                future = loop.create_future()
                self._waiters.append((loop, future))
            try:
                await future
            finally:
                with self._changed, suppress(ValueError):  # it is gone once it was woken
                    self._waiters.remove((loop, future))


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
