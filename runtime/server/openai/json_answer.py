"""How routes answer and what their schema says of it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from dsv4_trt.runtime.server.openai.answer_head import dumped
from dsv4_trt.runtime.server.openai.error_objects import ERRORS

Responses = dict[int | str, dict[str, Any]]


def json_answer(data: object) -> Response:
    """Plain JSON data as an answer."""
    return Response(dumped(data), media_type="application/json")


def declared(model: type[BaseModel], chunk: type[BaseModel] | None = None) -> Responses:
    """The answers of a route: `model`, the errors, and a stream of `chunk`s where it has one."""
    found: dict[str, Any] = {"model": model}
    if chunk is not None:
        stream = {
            "type": "string",
            "description": f"Events `data: {chunk.__name__}`, then `data: [DONE]`.",
        }
        found["content"] = {"text/event-stream": {"schema": stream}}
    return {200: found, **ERRORS}
