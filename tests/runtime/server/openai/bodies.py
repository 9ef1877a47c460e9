"""Short ways to read request bodies as the routes do."""

import pytest
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.server.error_handlers import invalid_failure
from dsv4_trt.runtime.server.openai.chat_request import ChatRequest

HI = [{"role": "user", "content": "Hi"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}},
            "required": ["city"],
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}},
}


def chat(**fields):
    return ChatRequest.model_validate({"messages": HI} | fields)


def turn(**fields):
    return chat(**fields).turn()


def refusal(read, **fields):
    """Parameter and message of the error that `read(**fields)` ends with."""
    with pytest.raises((RequestError, ValidationError)) as caught:
        read(**fields)
    error = caught.value
    if isinstance(error, RequestError):
        return error.parameter, str(error)
    errors = [each | {"loc": ("body", *each["loc"])} for each in error.errors()]
    failure = invalid_failure(RequestValidationError(errors).errors())
    return failure.parameter, failure.message


def accepts(model, value):
    """Whether a JSON value is one of a pydantic model of an answer, with no field left over."""
    adapter = TypeAdapter(model)
    found = adapter.validate_python(value, strict=True)
    assert adapter.dump_python(found, exclude_unset=True) == value
    return True
