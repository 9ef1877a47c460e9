"""The server's side of one request: what the executor told of it and nobody has read yet.

Belongs to the event loop: nothing here is called from another thread. A reader that is slow gets the news
of several steps at once, so what waits for it is bounded by the request's own length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dsv4_trt.errors import Dsv4Error
from dsv4_trt.runtime.request import Request
from dsv4_trt.runtime.update import Update


class TokenStream:
    """Updates of one request, in order; the last of all has `finished`."""

    def __init__(self, request: Request, cancel: Callable[[str], None]) -> None:
        self.request = request
        self.is_finished = False  # the last update has come, read or not
        self.error: Dsv4Error | None = None  # the first that ended a sequence
        self.cached_tokens = 0  # of the prompt; known with the first news
        self._cancel = cancel
        self._news: list[Update] = []
        self._waiter: asyncio.Future[None] | None = None

    def deliver(self, update: Update) -> None:
        """Take one update and wake the reader."""
        self._news.append(update)
        self.error = self.error or update.error
        if update.index == 0 and update.num_cached is not None:  # it computed the prompt
            self.cached_tokens = update.num_cached
        self.is_finished = self.is_finished or update.finished
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read(self) -> list[Update]:
        """Everything that came since the last read, at least one update; nothing = that was all."""
        while not self._news and not self.is_finished:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        news, self._news = self._news, []
        return news

    def cancel(self) -> None:
        """End the request at the executor's next step; nothing happens if it has ended."""
        if not self.is_finished:
            self._cancel(self.request.request_id)
