"""Sends requests to an OpenAI-compatible server, each sender over a connection of its own."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from dsv4_trt import __version__
from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.bench.answer import Answer
from dsv4_trt.runtime.bench.ask import Ask
from dsv4_trt.runtime.bench.event_splitter import EventSplitter
from dsv4_trt.runtime.bench.http_connection import HttpConnection
from dsv4_trt.runtime.bench.openai_body import PATHS, CountBy, Endpoint, request_body
from dsv4_trt.runtime.bench.record import Record

MAX_ERROR_BYTES = 64 << 10  # kept of an answer that is an error
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which server and model, and how requests to it are written."""

    base_url: str  # as `base_of` gives it
    endpoint: Endpoint
    model: str
    api_key: str | None = None
    timeout: float = 600.0  # seconds of a whole request
    count_by: CountBy = "token_ids"
    more: Mapping[str, Any] = field(default_factory=dict)  # further fields of the body

    @property
    def url(self) -> str:
        """Where requests go."""
        return self.base_url + PATHS[self.endpoint]

    def body(self, ask: Ask) -> bytes:
        """The bytes of a request's body."""
        body = request_body(ask, self.endpoint, self.model, self.count_by, self.more)
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()

    def request(self, ask: Ask) -> bytes:
        """The bytes of a request."""
        body, url = self.body(ask), urlsplit(self.url)
        headers = headers_of(self.api_key) | {
            "host": url.netloc,
            "content-type": "application/json",
            "accept": "text/event-stream",
            "content-length": str(len(body)),
        }
        lines = [f"POST {url.path} HTTP/1.1", *(f"{n}: {v}" for n, v in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def headers_of(api_key: str | None) -> dict[str, str]:
    """Headers of every request; `ConfigError` for a key that no header can carry."""
    found = {"user-agent": f"dsv4-trt-bench/{__version__}", "accept-encoding": "identity"}
    if api_key is None:
        return found
    if not (api_key.isascii() and api_key.isprintable()):
        raise ConfigError("the API key has characters that no header can carry; expected ASCII")
    return found | {"authorization": f"Bearer {api_key}"}


def base_of(url: str) -> str:
    """A server's address without /v1; `ConfigError` for what is none."""
    try:
        parsed = urlsplit(url)
        is_address = parsed.scheme in PORTS and bool(parsed.hostname) and parsed.port != 0
    except ValueError:
        is_address = False
    if not is_address or not url.isascii() or not url.isprintable() or " " in url or "@" in url:
        raise ConfigError(f"base_url is '{url}'; expected one like http://HOST:8000")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def new_senders(target: Target, asks: Sequence[Ask]) -> Callable[[], HttpSender]:
    """A function that makes senders; requests are written here, so that the run does not."""
    requests = {id(ask): target.request(ask) for ask in asks}
    place = urlsplit(target.url)
    tls = ssl.create_default_context() if place.scheme == "https" else None
    return lambda: HttpSender(place, requests, tls, target.timeout)


class HttpSender:
    """One connection, opened with the first request and opened again after it ended."""

    def __init__(
        self,
        place: SplitResult,
        requests: Mapping[int, bytes],
        tls: ssl.SSLContext | None,
        timeout: float,
    ) -> None:
        self._place, self._requests, self._tls, self._timeout = place, requests, tls, timeout
        self._connection: HttpConnection | None = None

    async def send(self, ask: Ask, record: Record) -> None:
        """See `Sender`."""
        record.sent = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._connected(record)
                if connection is not None:
                    await self._stream(connection, self._requests[id(ask)], record)
        except TimeoutError:
            record.fail("timeout", f"no end after {self._timeout:g} s")
        except OSError as error:
            record.fail("connection", str(error))
        record.ended = time.perf_counter()

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    async def _connected(self, record: Record) -> HttpConnection | None:
        if self._connection is None or not self._connection.is_open:
            host, port = self._place.hostname, self._place.port or PORTS[self._place.scheme]
            assert host is not None
            try:
                self._connection = await HttpConnection.connect(host, port, self._tls)
            except OSError as error:
                record.fail("connect", str(error))
                return None
        return self._connection

    async def _stream(self, connection: HttpConnection, request: bytes, record: Record) -> None:
        answer, splitter, refusal = Answer(record), EventSplitter(), bytearray()

        def take(piece: bytes, now: float) -> None:
            if connection.status == 200:
                for data in splitter.push(piece):
                    answer.read(data, now)
            elif len(refusal) < MAX_ERROR_BYTES:
                refusal.extend(piece)

        try:
            await connection.exchange(request, take)
        finally:
            record.status = connection.status or None
        if connection.status == 200:
            answer.finish()
        else:
            record.fail(f"http {connection.status}", refusal.decode(errors="replace"))
