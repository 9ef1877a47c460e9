"""What a client is told of an error: status, type, parameter; never the inside of the server."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from dsv4_trt.errors import (
    EngineFault,
    MissingDependency,
    QueueFull,
    RequestError,
    TooLong,
    Unavailable,
)

ANTHROPIC_PATH = "/v1/messages"
QUEUE_RETRY_SECONDS = 1
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error as the protocols know it."""

    status: int
    kind: str  # OpenAI's `type`
    message: str
    parameter: str | None = None
    code: str | None = None
    retry_after: int | None = None  # seconds
    is_final: bool = (
        False  # the same request would end the same way: official clients send it again
    )


class Refusal(Exception):
    """Ends a request with this failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def failure_of(error: Exception) -> Failure:
    """The failure that stands for an error; what is not the client's to know goes to the log alone."""
    match error:
        case Refusal(failure=failure):
            return failure
        case RequestError():
            return Failure(
                status=400,
                kind="invalid_request_error",
                message=str(error),
                parameter=error.parameter,
                code="context_length_exceeded" if isinstance(error, TooLong) else None,
            )
        case QueueFull():
            return Failure(
                status=429,
                kind="rate_limit_error",
                message=str(error),
                code="queue_full",
                retry_after=QUEUE_RETRY_SECONDS,
            )
        case Unavailable():
            return Failure(
                status=503,
                kind="service_unavailable",
                message=str(error),
                code="unavailable",
                retry_after=error.retry_after,
            )
        case MissingDependency():
            return Failure(status=501, kind="not_implemented_error", message=str(error))
    if isinstance(error, EngineFault):
        what = "the engine"
        log.error("the engine failed in a request", extra={"error": str(error)})
    else:
        what = "the server"
        log.error("the server failed in a request", exc_info=error)
    return Failure(
        status=500,
        kind="internal_error",
        message=f"{what} failed while it ran this request; the server's log says more",
    )


def openai_body(failure: Failure) -> dict[str, Any]:
    """The failure as OpenAI's API writes it."""
    return {
        "error": {
            "message": _writable(failure.message),
            "type": failure.kind,
            "param": failure.parameter and _writable(failure.parameter),
            "code": failure.code,
        }
    }


def anthropic_body(failure: Failure, request_id: str | None) -> dict[str, Any]:
    """The failure as Anthropic's API writes it."""
    kind = _ANTHROPIC_TYPES.get(failure.status, "api_error")
    named = failure.parameter is None or failure.message.startswith(failure.parameter)
    where = "" if named else f"{failure.parameter}: "
    return {
        "type": "error",
        "error": {"type": kind, "message": _writable(where + failure.message)},
        "request_id": request_id,
    }


def _writable(text: str) -> str:
    """A text that repeats what a client sent, with halves of surrogate pairs in escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def failure_response(failure: Failure, scope: Any) -> Response:
    """An answer in the shape of the API that the path belongs to."""
    if scope["path"].startswith(ANTHROPIC_PATH):
        body = anthropic_body(failure, scope.get("state", {}).get("request_id"))
    else:
        body = openai_body(failure)
    headers = {} if failure.retry_after is None else {"retry-after": str(failure.retry_after)}
    if failure.status in (408, 413):
        headers["connection"] = "close"  # the rest of the body is not waited for
    if failure.is_final:
        headers["x-should-retry"] = "false"
    if failure.status == 401:
        headers["www-authenticate"] = "Bearer"
    text = json.dumps(body)  # in ASCII: a message may repeat a lone surrogate
    return Response(text, failure.status, headers, media_type="application/json")
