"""Answers that stop their request when the client goes away: streams of events, and whole ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dsv4_trt.runtime.server.failures import Failure, failure_of
from dsv4_trt.runtime.server.json_answer import encoded

T = TypeVar("T")

STALL_SECONDS = 120.0  # how long a client may take no bytes before its stream is ended
QUIET_SECONDS = 15.0  # after that many without an event a comment tells proxies that there is life
_COMMENT = ": waiting\n\n"


class Run(Protocol):
    """A run of the engine."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...
    @property
    def reasoning_tokens(self) -> int: ...

    def cancel(self) -> None:
        """End it at the next step; nothing happens if it has ended."""
        ...


class EventStream(Response):
    """A `text/event-stream` of chunks, each with its own framing.

    The run is cancelled when the client disconnects, when it takes nothing for `STALL_SECONDS`, and when
    the chunks end early. An error of the chunks becomes a last chunk, made by `error_chunk`.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        run: Run,
        chunks: AsyncIterator[str],
        error_chunk: Callable[[Failure], str],
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._run, self._chunks, self._error_chunk = run, chunks, error_chunk
        self._sending_since: float | None = None  # on the loop's clock; None = no send is under way
        self._last_sent = asyncio.get_running_loop().time()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        body = asyncio.create_task(self._send_all(start, send))
        gone = asyncio.create_task(wait_for_disconnect(receive))
        life = asyncio.create_task(self._watch(send))
        tasks = (body, gone, life)
        try:
            await asyncio.wait(tasks, return_when="FIRST_COMPLETED")
            if life.done():
                scope["state"]["abort"]()
            elif body.done():
                body.result()
        finally:
            self._run.cancel()
            note_usage(scope, self._run)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, send: Send) -> None:
        """Send comments into quiet streams; return once the client has taken nothing for too long."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(QUIET_SECONDS)
            since = self._sending_since
            if since is not None and clock() - since > STALL_SECONDS:
                return
            if since is None and clock() - self._last_sent > QUIET_SECONDS:
                self._comment = asyncio.create_task(
                    self._send(_COMMENT, send)
                )  # may be what stalls

    async def _send_all(self, start: dict[str, Any], send: Send) -> None:
        await send(start)
        try:
            async for chunk in self._chunks:
                await self._send(chunk, send)
        except OSError:
            raise  # the connection's, not the run's
        except Exception as error:
            await self._send(self._error_chunk(failure_of(error)), send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, chunk: str, send: Send) -> None:
        self._sending_since = self._last_sent = asyncio.get_running_loop().time()
        await send({"type": "http.response.body", "body": encoded(chunk), "more_body": True})
        self._sending_since = None


async def answer_or_cancel(request: Request, run: Run, answer: Coroutine[Any, Any, T]) -> T:
    """The answer; the run is cancelled if the client disconnects before, or the answer fails."""
    work = asyncio.create_task(answer)
    gone = asyncio.create_task(wait_for_disconnect(request.receive))
    try:
        await asyncio.wait({work, gone}, return_when="FIRST_COMPLETED")
        if not work.done():
            request.scope["state"]["has_left"] = True
            run.cancel()  # the rest ends by itself, and nobody reads it
        return await work
    except BaseException:
        run.cancel()
        raise
    finally:
        note_usage(request.scope, run)
        gone.cancel()


def note_usage(scope: Scope, run: Run) -> None:
    """Let the line in the log tell what the request took."""
    scope["state"]["usage"] = {
        "prompt_tokens": run.prompt_tokens,
        "cached_tokens": run.cached_tokens,
        "completion_tokens": run.completion_tokens,
    }


async def wait_for_disconnect(receive: Callable[[], Awaitable[Any]]) -> None:
    """Return once the client is gone; its body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
