"""What TensorRT says while it builds: what is kept, and the one sentence that must not come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsv4_trt.plugins.tensorrt_logger import ERRORS, make_logger

# "Inserting copy/copies before plugin ...": a tensor with two in-place users
_COPY = "nserting cop"
_LAYERS = "Layers:\n"  # begins the list of what the plan consists of, which is logged as verbose


class BuildLog:
    """Collects messages; `logger` is the object that TensorRT takes.

    If TensorRT puts a copy before a plugin that writes in place, `alarm` is told at once: it would copy a
    whole pool in every step and lose what the step writes, and the builder may not live to say more.
    """

    def __init__(self, trt: Any, alarm: Callable[[str], None]) -> None:
        self._alarm = alarm
        self.lines: list[str] = []
        self.layers = ""  # the list of the plan's layers
        self._errors: list[str] = []
        self.logger = make_logger(trt, self._take)

    def last_error(self) -> str:
        """What was wrong: the first error since the last call, "" if there is none."""
        found, self._errors = self._errors, []
        return found[0] if found else ""

    def report(self, message: str) -> None:
        """An error that TensorRT does not know the reason of."""
        self._errors.append(message)

    def text(self) -> str:
        """The log as it is kept: messages, then the plan's layers."""
        return "\n".join([*self.lines, self.layers])

    def _take(self, severity: str, message: str) -> None:
        if _COPY in message:
            self._alarm(
                f"TensorRT copies a KV pool instead of writing in place: {message}; every version of a "
                "pool must have one reader: this is a fault of the graph"
            )
        elif severity == "VERBOSE":
            if message.startswith(_LAYERS):
                self.layers = message
            return
        if severity in ERRORS and "cudaError 35" not in message:
            self._errors.append(message)  # error 35, no driver, comes with every build on a CPU
        self.lines.append(f"[{severity}] {message}")
