"""The way back of one Triton request: responses, at most one error, and the end, each once and in order.

Triton's front end does not survive two threads that send for one request at the same time.
"""

from __future__ import annotations

import traceback
from threading import Lock
from typing import Any

from dsv4_trt.runtime.triton.answers import Tensors
from dsv4_trt.runtime.triton.failures import code_of, text_of


class Reply:
    """One response sender of the Python backend; all methods may be called by any thread."""

    def __init__(self, request: Any, backend: Any) -> None:
        """Take the sender of an `InferenceRequest`; `backend` is triton_python_backend_utils."""
        self._sender = request.get_response_sender()
        self._wanted = set(request.requested_output_names())
        self._backend = backend
        self._lock = Lock()
        self._is_closed = False

    def send(self, tensors: Tensors, *, last: bool = False) -> None:
        """Send a response of the tensors that the client wants; nothing happens after the end."""
        self._send(self._response(tensors), last=last)

    def fail(self, error: Exception) -> None:
        """End with an error; one that is not the client's is logged."""
        code = code_of(error)
        if code == "INTERNAL":
            self._backend.Logger.log_error("".join(traceback.format_exception(error)))
        kind = self._backend.TritonError
        self._send(
            self._backend.InferenceResponse(error=kind(text_of(error), getattr(kind, code))),
            last=True,
        )

    def close(self) -> None:
        """End without a further response."""
        self._send(None, last=True)

    def is_cancelled(self) -> bool:
        """Whether the client has gone, as far as Triton noticed; False after the end."""
        with self._lock:
            return not self._is_closed and bool(self._sender.is_cancelled())

    def _response(self, tensors: Tensors) -> Any:
        return self._backend.InferenceResponse(
            [
                self._backend.Tensor(name, array)
                for name, array in tensors.items()
                if name in self._wanted
            ]
        )

    def _send(self, response: Any, *, last: bool) -> None:
        flags = self._backend.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = last
            if response is None:
                self._sender.send(flags=flags)
            else:
                self._sender.send(response, flags=flags)
