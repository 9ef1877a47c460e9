"""JSON on its way out: as text, as an answer, as an event of a stream."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response


def dumped(data: object) -> str:
    """Compact JSON text."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def encoded(text: str) -> bytes:
    r"""JSON text as bytes; half a surrogate pair becomes the escape, `\ud800`, that it came as."""
    return text.encode("utf-8", "backslashreplace")


def json_answer(data: object) -> Response:
    """Plain JSON data as an answer."""
    return Response(encoded(dumped(data)), media_type="application/json")


def named_event(data: dict[str, Any]) -> str:
    """A server-sent event that is named by its type."""
    return f"event: {data['type']}\ndata: {dumped(data)}\n\n"
