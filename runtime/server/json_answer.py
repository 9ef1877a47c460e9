"""JSON on its way out: as text, as an answer, as an event of a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.responses import Response

T = TypeVar("T")

MANY_TOKENS = 500  # log-probabilities of more are written in a thread
_PIECES = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def dumped(data: object) -> str:
    """Compact JSON text."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def encoded(text: str) -> bytes:
    r"""JSON text as bytes; half a surrogate pair becomes the escape, `\ud800`, that it came as."""
    return text.encode("utf-8", "backslashreplace")


def json_answer(data: object) -> Response:
    """Plain JSON data as an answer."""
    return Response(encoded(dumped(data)), media_type="application/json")


async def aside_if_many(num_tokens: int, work: Callable[[], T]) -> T:
    """Do the work here, or in a thread if it is for so many tokens that other streams would wait."""
    return work() if num_tokens < MANY_TOKENS else await asyncio.to_thread(work)


async def token_answer(data: object, num_tokens: int) -> Response:
    """As `json_answer`; what is said of many tokens is written piece by piece while other streams go on.

    `num_tokens` counts alternatives too. `json.dumps` would let no other thread run until its end.
    """
    if num_tokens < MANY_TOKENS:
        return json_answer(data)
    text = await aside_if_many(num_tokens, lambda: "".join(_PIECES.iterencode(data)))
    return Response(encoded(text), media_type="application/json")


def named_event(data: dict[str, Any]) -> str:
    """A server-sent event that is named by its type."""
    return f"event: {data['type']}\ndata: {dumped(data)}\n\n"
