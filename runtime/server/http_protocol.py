"""uvicorn's HTTP protocol with what it lacks: a request's head has bounds, of size and time; and an offer
to speak another protocol is passed over, as HTTP says, where uvicorn loses the body that came with it.

Java's client makes that offer (`Upgrade: h2c`) with its first request.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 << 10  # of the request line and headers, beyond their first packet
HEAD_SECONDS = 30.0  # from a connection's beginning, or a head's first byte, to the end of the head
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 0\r\n\r\n"
)
_OFFER = (b"upgrade", b"http2-settings", b"connection")


class BoundedProtocol(HttpToolsProtocol):
    """One connection; one whose head is too large or too slow is closed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None  # None = no head is awaited

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._head_timer is not None:
            self._head_bytes += len(data)
        self._parse(data)
        if self._head_timer is not None and self._head_bytes > MAX_HEAD_BYTES:
            if not self._is_answering:
                self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["abort"] = (
            self.transport.abort
        )  # to be rid of a client that takes nothing
        self._await_head()

    def on_headers_complete(self) -> None:
        if not self.parser.should_upgrade():  # else it is read again without the offer
            self._end_head()
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parse(self._head_without_offer() + data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _head_without_offer(self) -> bytes:
        """The head that was read, for a new parser: this one takes what follows for the other protocol."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        start = b"%s %s HTTP/%s" % (method, self.url, version.encode())
        lines = [name + b": " + value for name, value in self.headers if name not in _OFFER]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return b"\r\n".join([start, *lines, b"", b""])

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_head(self) -> None:
        self._end_head()
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        if self._is_answering:  # a pipelined request: what runs goes on
            self._await_head()
        else:
            self.transport.close()
