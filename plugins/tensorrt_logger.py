"""The object that TensorRT logs to, whichever of its bindings are in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ERRORS = ("ERROR", "INTERNAL_ERROR")  # severities


def make_logger(trt: Any, take: Callable[[str, str], None]) -> Any:
    """A logger that hands the name of the severity and the text of each message to `take`."""

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            take(severity.name, message)

    return Logger()
