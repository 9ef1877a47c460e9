"""Answers that the server ended, and not the model: what the client is told."""

from __future__ import annotations

from dsv4_trt.runtime.server.failures import Failure, Refusal

FINISHED = ("stop", "length", "tool_calls")  # how a model ends an answer
_FAILURES = {
    "timeout": Failure(
        status=504,
        kind="timeout_error",
        message="the answer was not complete when the request's time was up; ask for less, or stream it: "
        "whoever runs the server can raise --request_timeout",
        code="timeout",
        is_final=True,
    ),
    "cancelled": Failure(
        status=503,
        kind="service_unavailable",
        message="the server stopped before the answer was complete; send the request again",
        code="unavailable",
        retry_after=1,
    ),
}


def check_ended(finish_reason: str | None) -> str:
    """The reason, if it is one of `FINISHED`; raises `Refusal` for an answer that ended otherwise.

    Not for "error": the run raises that itself, at its end.
    """
    if finish_reason not in (*FINISHED, "error"):
        raise Refusal(_FAILURES["timeout" if finish_reason == "timeout" else "cancelled"])
    return finish_reason
