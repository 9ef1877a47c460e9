"""Brings every exception of a route, and what FastAPI itself refuses, into the shape of the API."""

from __future__ import annotations

from collections.abc import Sequence
from reprlib import Repr
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from dsv4_trt.errors import Dsv4Error
from dsv4_trt.runtime.server.failures import Failure, Refusal, failure_of, failure_response

MAX_SHOWN = 200  # characters of an illegal value that an error repeats


def add_error_handlers(app: FastAPI) -> None:
    """Register the handlers."""
    for kind in (Dsv4Error, Refusal, Exception):
        app.add_exception_handler(kind, _answer)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)


async def _answer(request: Request, error: Exception) -> Response:
    return failure_response(failure_of(error), request.scope)


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return failure_response(invalid_failure(error.errors()), request.scope)


def invalid_failure(errors: Sequence[Any]) -> Failure:
    """What pydantic found, as one message about one parameter: the first."""
    first = errors[0]
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "it can not be parsed")
        message, parameter = f"the body is no JSON: {reason}; send one JSON object", None
    elif tuple(first["loc"]) == ("body",) and first["type"] != "missing":
        message = "the body is no JSON object; send one, with 'content-type: application/json'"
        parameter = None
    else:
        parameter = _path(first["loc"])
        found = "" if first["type"] == "missing" else _shown(first.get("input"))
        message = f"{parameter or 'the body'} is {found or 'missing'}: {first['msg']}"
        if len(errors) > 1:
            message += f" (and {len(errors) - 1} more like this)"
    return Failure(
        status=400, kind="invalid_request_error", message=message, parameter=parameter or None
    )


def _shown(value: object) -> str:
    """The beginning of a value, in time that does not grow with it."""
    short = Repr()
    short.maxstring = short.maxlong = short.maxother = MAX_SHOWN
    return short.repr(value)[:MAX_SHOWN]


def _path(loc: Sequence[str | int]) -> str:
    """`messages[0].content` for ("body", "messages", 0, "content"); names of union members are left out."""
    path = ""
    for part in loc[1:] if loc and loc[0] in ("body", "query", "path", "header") else loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and not part[0].isupper() and part not in _TYPE_NAMES:
            path += f".{part}" if path else part
    return path


_TYPE_NAMES = {"str", "int", "float", "bool", "list", "dict", "tuple", "none"}


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, Refusal):  # of a body, met while FastAPI read it
        return failure_response(error.__cause__.failure, request.scope)
    messages = {
        404: f"there is nothing at {request.scope['path']}; GET /openapi.json lists what there is",
        405: f"{request.method} is not allowed at {request.scope['path']}",
    }
    if error.status_code == 400:  # FastAPI's, of a body that Python's JSON can not take
        messages[400] = (
            "the body can not be read as JSON: it is no UTF-8, nests too deep, or has a "
        )
        messages[400] += "number of too many digits; send one JSON object"
    failure = Failure(
        status=error.status_code,
        kind="invalid_request_error",
        message=messages.get(error.status_code, str(error.detail)),
    )
    response = failure_response(failure, request.scope)
    response.headers.update(error.headers or {})
    return response
