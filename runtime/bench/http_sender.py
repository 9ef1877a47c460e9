"""Sends requests to an OpenAI-compatible server, each sender over a connection of its own.

A pool of httpx looks through all its connections for every request, which with hundreds of them is most
of the client's time; a transport with one connection has nothing to look through. httpx is for this
folder alone.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from dsv4_trt import __version__
from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.bench.answer import Answer
from dsv4_trt.runtime.bench.ask import Ask
from dsv4_trt.runtime.bench.event_splitter import EventSplitter
from dsv4_trt.runtime.bench.openai_body import PATHS, CountBy, Endpoint, request_body
from dsv4_trt.runtime.bench.record import Record

MAX_ERROR_BYTES = 64 << 10  # read of an answer that is an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which server and model, and how requests to it are written."""

    base_url: str  # without a path
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


def headers_of(api_key: str | None) -> dict[str, str]:
    """Headers of every request."""
    found = {"user-agent": f"dsv4-trt-bench/{__version__}", "accept-encoding": "identity"}
    return found if api_key is None else found | {"authorization": f"Bearer {api_key}"}


def base_of(url: str) -> str:
    """A server's address without a path; `ConfigError` for what is none."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(
            f"base_url is '{url}': {error}; give one like http://HOST:8000"
        ) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(f"base_url is '{url}'; expected one like http://HOST:8000")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def new_senders(target: Target, asks: Sequence[Ask]) -> Callable[[], HttpSender]:
    """A function that makes senders; bodies are written here, so that the run does not."""
    bodies = {id(ask): target.body(ask) for ask in asks}
    headers = headers_of(target.api_key) | {
        "content-type": "application/json",
        "accept": "text/event-stream",
    }
    tls = ssl.create_default_context()  # takes long, so one for all, also where none is needed
    return lambda: HttpSender(target, bodies, headers, tls)


class HttpSender:
    """One connection, opened with the first request and opened again after it broke."""

    def __init__(
        self,
        target: Target,
        bodies: Mapping[int, bytes],
        headers: Mapping[str, str],
        tls: ssl.SSLContext,
    ) -> None:
        self._target = target
        self._bodies, self._headers = bodies, headers
        self._transport = httpx.AsyncHTTPTransport(verify=tls)

    async def send(self, ask: Ask, record: Record) -> None:
        """See `Sender`."""
        try:
            async with asyncio.timeout(self._target.timeout):
                await self._stream(self._bodies[id(ask)], record)
        except TimeoutError:
            record.fail("timeout", f"no end after {self._target.timeout:g} s")
        except httpx.TransportError as error:
            kind = "connect" if isinstance(error, httpx.ConnectError) else "connection"
            record.fail(kind, f"{type(error).__name__}: {error}")
        record.ended = time.perf_counter()

    async def close(self) -> None:
        """Close the connection."""
        await self._transport.aclose()

    async def _stream(self, body: bytes, record: Record) -> None:
        request = httpx.Request("POST", self._target.url, headers=self._headers, content=body)
        record.sent = time.perf_counter()
        response = await self._transport.handle_async_request(request)
        try:
            record.status = response.status_code
            pieces = response.stream
            assert isinstance(pieces, httpx.AsyncByteStream)
            if response.status_code != 200:
                text = await _start_of(pieces)
                record.fail(f"http {response.status_code}", text.decode(errors="replace"))
                return
            answer, splitter = Answer(record), EventSplitter()
            async for piece in pieces:
                now = time.perf_counter()
                for data in splitter.push(piece):
                    answer.read(data, now)
            answer.finish()
        finally:
            await response.aclose()


async def _start_of(pieces: httpx.AsyncByteStream) -> bytes:
    """The start of an answer, read to its end unless it is long."""
    found = b""
    async for piece in pieces:
        found += piece
        if len(found) >= MAX_ERROR_BYTES:
            break
    return found
