"""What all request bodies share: strict JSON types, and what becomes of fields that are not served.

The API grows faster than servers do, so a field that nobody here knows is no error. A field that is known
and would change the answer, had it been read, is one: its name stands in `unsupported`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from dsv4_trt.errors import RequestError

MAX_STOPS = 16  # stop strings of a request
MAX_ITEMS = 10_000  # messages of a conversation, and parts of a message


def _check_json(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, RecursionError) as error:  # NaN, half a surrogate pair, too many levels
        raise PydanticCustomError(
            "json_object", "expected JSON of numbers and whole characters"
        ) from error
    return value


# an object that is kept as it is: one that can be written again
JsonObject: TypeAlias = Annotated[dict[str, Any], AfterValidator(_check_json)]


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A field that is known and not served: what to do instead, and values that ask for nothing."""

    instead: str
    neutral: tuple[object, ...] = ()  # besides null

    def allows(self, value: object) -> bool:
        """Whether the value asks for nothing; true is no 1."""
        return any(type(value) is type(each) and value == each for each in self.neutral)


class Body(BaseModel):
    """A JSON object of a request."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
    unsupported: ClassVar[Mapping[str, Unsupported]] = {}

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for name, entry in cls.unsupported.items():
                value = data.get(name)
                if value is not None and not entry.allows(value):
                    raise RequestError(f"{name} is not supported; {entry.instead}", parameter=name)
        return data

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The schema, in which an unsupported field has only the values that ask for nothing."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        for name, entry in cls.unsupported.items():
            legal = {"enum": [None, *entry.neutral], "description": f"Refused: {entry.instead}."}
            schema.setdefault("properties", {})[name] = legal
        return schema


def by_kind(expected: str) -> Discriminator:
    """Choose the member of a union by its JSON type, tagged "string?", "array?" or "object?".

    The tags are no words of a path, so an error's path shows the body's own names alone.
    """
    return Discriminator(
        _kind, custom_error_type="kind", custom_error_message=f"expected {expected}"
    )


def by_field(field: str, **tags: str) -> Discriminator:
    """Choose the member of a union by the text in `field`: `tags` has the tag for each."""

    def tag(value: Any) -> str | None:
        found = value.get(field) if isinstance(value, dict) else None
        return tags.get(found) if isinstance(found, str) else None

    expected = f"expected an object whose {field} is {' or '.join(tags)}"
    return Discriminator(tag, custom_error_type="kind", custom_error_message=expected)


def refuse_unknown(what: str, known: tuple[str, ...]) -> BeforeValidator:
    """Refuse an object whose type is not among these, by its name; `what` the object is."""

    def check(value: object) -> object:
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(kind, str) and kind not in known:
            raise PydanticCustomError(
                "unsupported_type",
                "{what} of type {kind} is not supported; expected {known}",
                {"what": what, "kind": repr(kind), "known": ", ".join(known)},
            )
        return value

    return BeforeValidator(check)


def _kind(value: Any) -> str | None:
    kinds = {"str": "string?", "list": "array?", "dict": "object?"}
    return kinds.get(type(value).__name__)
