"""The server's log: one line an event, as text for people or as JSON for machines, on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from dsv4_trt.runtime.server.serve_config import ServeConfig

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


def set_up_logs(config: ServeConfig) -> None:
    """Send everything that is logged to standard error in the format of `config`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormat() if config.log_format == "json" else TextFormat())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(config.log_level.upper())
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # what it tells, the server tells itself


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as `extra`."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class JsonFormat(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **extras(record),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormat(logging.Formatter):
    """Time, level, message, and what was given with it as `name=value`."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        parts = [time, record.levelname.lower().ljust(7), record.getMessage()]
        parts += [f"{key}={_word(value)}" for key, value in extras(record).items()]
        text = " ".join(parts)
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _word(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and text else json.dumps(text)
