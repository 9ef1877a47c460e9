"""What all request bodies share: strict JSON types, and what becomes of fields that are not served.

The API grows faster than servers do, so a field that nobody here knows is no error. A field that is known
and would change the answer, had it been read, is one: its name stands in `unsupported`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Discriminator, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from dsv4_trt.errors import RequestError


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


def _kind(value: Any) -> str | None:
    kinds = {"str": "string?", "list": "array?", "dict": "object?"}
    return kinds.get(type(value).__name__)
