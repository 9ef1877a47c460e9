"""Our errors as Triton classifies them. Text of errors that are not ours stays in the server's log."""

from __future__ import annotations

from dsv4_trt.errors import CapacityError, Dsv4Error, EngineFault, RequestError


class UnsupportedInput(RequestError):
    """A request uses an input of TensorRT-LLM's that has no counterpart here."""


class NoSuchRequest(RequestError):
    """A request is to be stopped that does not run."""


# the first that fits; values are names of `TritonError`'s codes
_CODES: tuple[tuple[type[Dsv4Error], str], ...] = (
    (UnsupportedInput, "UNSUPPORTED"),
    (NoSuchRequest, "NOT_FOUND"),
    (RequestError, "INVALID_ARG"),
    (CapacityError, "UNAVAILABLE"),
    (EngineFault, "INTERNAL"),
)


def code_of(error: Exception) -> str:
    """The name of the Triton error code for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), "INTERNAL")


def text_of(error: Exception) -> str:
    """What a client is told."""
    if isinstance(error, Dsv4Error):
        return str(error)
    return "the request failed by an internal error; the server's log has it"
