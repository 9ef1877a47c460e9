"""What the served schema says of a route's answers: their shapes, and that of errors."""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic import BaseModel


class ErrorDetail(BaseModel):
    """What was wrong; `param` names the field at fault, where there is one."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    """An error."""

    error: ErrorDetail


Answers: TypeAlias = dict[int | str, dict[str, Any]]

ERRORS: Answers = {
    "4XX": {
        "model": ErrorAnswer,
        "description": "Refused: 400 illegal, 401 no key, 404 no such model, 408 body too slow, 413 body "
        "too large, 429 queue full.",
    },
    "5XX": {
        "model": ErrorAnswer,
        "description": "500 engine or server failed, 503 no engine now; 429 and 503 have Retry-After.",
    },
}


def declared(model: type[BaseModel], chunk: type[BaseModel] | None = None) -> Answers:
    """The answers of a route: `model`, the errors, and a stream of `chunk`s where it has one."""
    found: dict[str, Any] = {"model": model}
    if chunk is not None:
        stream = {
            "type": "string",
            "description": f"Events `data: {chunk.__name__}`, then `data: [DONE]`.",
        }
        found["content"] = {"text/event-stream": {"schema": stream}}
    return {200: found, **ERRORS}
