"""Answers that the server ended, and not the model: what the client is told."""

from __future__ import annotations

from dsv4_trt.runtime.server.failures import Failure, Refusal

_FAILURES = {
    "timeout": Failure(
        status=504,
        kind="timeout_error",
        message="the answer was not complete when the request's time was up; ask for less, or raise "
        "--request_timeout",
        code="timeout",
    ),
    "cancelled": Failure(
        status=503,
        kind="service_unavailable",
        message="the server stopped before the answer was complete; send the request again",
        code="unavailable",
        retry_after=1,
    ),
}


def check_ended(finish_reason: str | None) -> None:
    """Raise `Refusal` for an answer that ended with neither "stop", "length" nor "tool_calls"."""
    if finish_reason not in ("stop", "length", "tool_calls"):
        raise Refusal(_FAILURES["timeout" if finish_reason == "timeout" else "cancelled"])
