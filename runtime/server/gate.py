"""What every HTTP request passes: a request id, the API key, limits on its body, and a line in the log."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dsv4_trt.runtime.server.failures import Failure, Refusal, failure_response
from dsv4_trt.runtime.server.http_metrics import HttpMetrics
from dsv4_trt.runtime.server.serve_config import ServeConfig

OPEN_PATHS = ("/", "/health", "/favicon.ico")  # and the page's files: what needs no key
OPEN_PREFIX = "/web/"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

log = logging.getLogger("dsv4_trt.access")


class Gate:
    """ASGI middleware around all routes."""

    def __init__(self, app: ASGIApp, config: ServeConfig, metrics: HttpMetrics) -> None:
        self._app, self._config, self._metrics = app, config, metrics
        self._key = None if config.api_key is None else config.api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        state = scope.setdefault("state", {})
        state["request_id"] = _request_id(headers)
        passage = Passage(scope, send, self._metrics)
        try:
            self._check(scope["path"], headers)
            body = LimitedBody(receive, self._config)
            await self._app(scope, body.receive, passage.send)
        except Refusal as refusal:
            if passage.status is not None:
                raise  # the answer has begun
            await failure_response(refusal.failure, scope)(scope, receive, passage.send)
        finally:
            passage.finish()

    def _check(self, path: str, headers: Headers) -> None:
        if self._key is not None and path not in OPEN_PATHS and not path.startswith(OPEN_PREFIX):
            scheme, _, token = headers.get("authorization", "").partition(" ")
            given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
            if not hmac.compare_digest(given.encode(), self._key):
                raise Refusal(
                    Failure(
                        status=401,
                        kind="authentication_error",
                        message="the API key is missing or wrong; send it as 'Authorization: Bearer KEY' "
                        "or 'x-api-key: KEY'",
                        code="invalid_api_key",
                    )
                )
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._config.max_request_bytes:
            raise too_large(int(length), self._config)


class LimitedBody:
    """A request's body as it comes in: no larger and no slower than the config allows."""

    def __init__(self, receive: Receive, config: ServeConfig) -> None:
        self._receive, self._config = receive, config
        self._size = 0
        self._is_whole = False
        self._deadline = asyncio.get_running_loop().time() + config.body_timeout

    async def receive(self) -> Message:
        """The next message; raises `Refusal` for a body beyond the limits."""
        if self._is_whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise Refusal(
                Failure(
                    status=408,
                    kind="timeout_error",
                    message=f"the body did not come within {self._config.body_timeout} s; send it again",
                )
            ) from None
        self._size += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        if self._size > self._config.max_request_bytes:
            raise too_large(self._size, self._config)
        return message


class Passage:
    """One request on its way out: its headers, its status, its time."""

    def __init__(self, scope: Scope, send: Send, metrics: HttpMetrics) -> None:
        self._scope, self._send, self._metrics = scope, send, metrics
        self._started = time.perf_counter()
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        """Pass a message on; the first one gets the request id."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = headers["request-id"] = self._scope["state"]["request_id"]
        await self._send(message)

    def finish(self) -> None:
        """Count and log; a request without an answer was left by its client."""
        seconds = time.perf_counter() - self._started
        has_left = self._scope["state"].get("has_left", False)
        status = 499 if self.status is None or has_left else self.status
        route = getattr(self._scope.get("route"), "path", "other")
        self._metrics.count(self._scope["method"], route, status, seconds)
        fields: dict[str, Any] = {
            "request_id": self._scope["state"]["request_id"],
            "method": self._scope["method"],
            "path": self._scope["path"],
            "status": status,
            "seconds": round(seconds, 6),
        }
        fields.update(self._scope["state"].get("usage", {}))
        log.log(
            logging.DEBUG if route == "/engine_stats" else logging.INFO, "request", extra=fields
        )


def _request_id(headers: Headers) -> str:
    """The client's own id where it is harmless, else a new one."""
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"


def too_large(size: int, config: ServeConfig) -> Refusal:
    """The refusal of a body of at least that many bytes."""
    return Refusal(
        Failure(
            status=413,
            kind="invalid_request_error",
            message=f"the body has {size} bytes or more, the limit is {config.max_request_bytes}; send "
            "less, or raise --max_request_bytes",
            code="request_too_large",
        )
    )
