"""One HTTP/1.1 connection that hands on each piece of an answer as it arrives.

A general client puts a task switch, timeouts and several layers between socket and reader of every token,
which with hundreds of streams is more than what is to be measured. Here the event loop calls the parser, in
C, and the parser the reader; what is read has the time at which it was taken off the socket.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable

import httptools

Take = Callable[[bytes, float], None]


class HttpConnection(asyncio.Protocol):
    """Sends a request and takes the answer to it, one after another, while `is_open`."""

    def __init__(self) -> None:
        self.is_open = False
        self.status = 0  # of the answer under way, once its head is there
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[None] | None = None
        self._now = 0.0

    @staticmethod
    async def connect(host: str, port: int, tls: ssl.SSLContext | None) -> HttpConnection:
        """Open a connection; raises `OSError`."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(HttpConnection, host, port, ssl=tls)
        return connection

    async def exchange(self, request: bytes, take: Take) -> None:
        """Send a request; `take` gets the pieces of the answer's body, each with its time.

        Raises `ConnectionError` where the connection ends first, or the answer is no HTTP. Cancelled, it
        closes the connection.
        """
        assert self._transport is not None
        self._take, self.status = take, 0
        self._has_length = False
        self._parser = httptools.HttpResponseParser(self)
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            await self._done
        except BaseException:
            self.close()
            raise
        finally:
            self._done = None

    def close(self) -> None:
        """Close the connection; again is no error."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.is_open = transport, True

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._done is None:
            self.close()  # nothing was asked
            return
        self._now = time.perf_counter()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.close()
            self._end(ConnectionError(f"the answer is no HTTP: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`; an answer without a length ends like this."""
        self.is_open = False
        if self.status and not self._has_length and error is None:
            self._end(None)
        else:
            what = "closed the connection" if error is None else f"broke the connection ({error})"
            self._end(ConnectionError(f"the server {what} before the end of the answer"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """See `httptools.HttpResponseParser`, as all further methods."""
        self._has_length |= name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, piece: bytes) -> None:
        self._take(piece, self._now)

    def on_message_complete(self) -> None:
        if not self._parser.should_keep_alive():
            self.close()
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._done is None or self._done.done():
            return
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)
