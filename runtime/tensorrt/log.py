"""What TensorRT complains about, kept until an error of ours tells it."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from dsv4_trt.plugins.tensorrt_logger import ERRORS, make_logger

_logger = logging.getLogger(__name__)
_MOST_ERRORS = 8  # one cause often brings several


class Log:
    """Collects errors; `logger` is the object that TensorRT takes. It may be called from any thread."""

    def __init__(self, trt: Any) -> None:
        self._errors: deque[str] = deque(maxlen=_MOST_ERRORS)
        self.logger = make_logger(trt, self._take)

    def take_errors(self) -> str:
        """What came since the last call, in one line."""
        found = []
        while self._errors:
            found.append(self._errors.popleft())
        return "; ".join(dict.fromkeys(found)) or "TensorRT gives no reason"

    def _take(self, severity: str, message: str) -> None:
        if severity in ERRORS:
            self._errors.append(" ".join(message.split()))
        elif severity == "WARNING":
            _logger.info("TensorRT: %s", message)
