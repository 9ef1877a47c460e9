"""The shape of an error, as the API's schema declares it."""

from __future__ import annotations

from typing import Any

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


ERRORS: dict[int | str, dict[str, Any]] = {
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
