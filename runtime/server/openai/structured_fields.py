"""Structured output: OpenAI's `response_format` and the names vLLM gave the rest."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, Tag

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams
from dsv4_trt.runtime.server.body import Body, JsonObject, by_field, by_kind

_GUIDED = ("json", "regex", "grammar", "choice")
SchemaOrText = Annotated[
    Annotated[JsonObject, Tag("object?")] | Annotated[str, Tag("string?")],
    by_kind("an object, or one as JSON text"),
]
Source = Annotated[str, StringConstraints(min_length=1)]
Choices = Annotated[list[str], Field(min_length=1)]


class TextFormat(Body):
    """Anything."""

    type: Literal["text"]


class JsonObjectFormat(Body):
    """Any JSON object."""

    type: Literal["json_object"]


class NamedSchema(Body):
    """A JSON schema; it is kept to whether `strict` or not."""

    name: str | None = None
    description: str | None = None
    schema_: JsonObject | None = Field(None, alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(Body):
    """JSON that a schema describes."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[
    Annotated[TextFormat, Tag("text?")]
    | Annotated[JsonObjectFormat, Tag("json_object?")]
    | Annotated[JsonSchemaFormat, Tag("json_schema?")],
    by_field("type", text="text?", json_object="json_object?", json_schema="json_schema?"),
]


class StructuredOutputs(Body):
    """vLLM's object; one of its fields."""

    json_: SchemaOrText | None = Field(None, alias="json")
    json_object: bool | None = None
    regex: Source | None = None
    grammar: Source | None = None
    choice: Choices | None = None
    structural_tag: SchemaOrText | None = None


class StructuredFields(Body):
    """At most one constraint, in any of its names."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: SchemaOrText | None = None
    guided_regex: Source | None = None
    guided_grammar: Source | None = None
    guided_choice: Choices | None = None

    def guided(self) -> GuidedDecodingParams | None:
        """The one constraint; `RequestError` where there are two."""
        found = self._asked()
        if len(found) > 1:
            first, second = [name for name, _, _ in found[:2]]
            raise RequestError(
                f"{first} and {second} both say what the output has to look like; give one of them",
                parameter=second,
            )
        return _params(*found[0]) if found else None

    @property
    def guided_name(self) -> str:
        """The field that holds the constraint, as errors name it."""
        return next((name for name, _, _ in self._asked()), "response_format")

    def _asked(self) -> list[tuple[str, str, Any]]:
        """Name, kind and value of each constraint that is there."""
        given = self.structured_outputs
        asked = [(f"guided_{kind}", kind, getattr(self, f"guided_{kind}")) for kind in _GUIDED]
        if given is not None:
            pairs = given.model_dump(by_alias=True, exclude_none=True).items()
            asked += [
                (f"structured_outputs.{k}", k, value) for k, value in pairs if value is not False
            ]
        asked.append(_of_format(self.response_format))
        return [each for each in asked if each[2] is not None]

    def schema_for_prompt(self) -> JsonObject | None:
        """The schema that V4's prompt format shows the model: that of `response_format`."""
        if isinstance(self.response_format, JsonSchemaFormat):
            return self.response_format.json_schema.schema_
        return None


def _of_format(
    given: TextFormat | JsonObjectFormat | JsonSchemaFormat | None,
) -> tuple[str, str, Any]:
    match given:
        case JsonSchemaFormat(json_schema=NamedSchema(schema_=dict() as schema)):
            return ("response_format.json_schema.schema", "json", schema)
        case JsonSchemaFormat() | JsonObjectFormat():
            return ("response_format", "json_object", True)
        case _:
            return ("response_format", "text", None)


def _params(name: str, kind: str, value: Any) -> GuidedDecodingParams:
    if kind == "choice":
        return GuidedDecodingParams(grammar=choice_grammar(value))
    if kind in ("json", "structural_tag") and isinstance(value, str):
        value = _read_object(name, value)
    return GuidedDecodingParams(**{kind: value})


def _read_object(name: str, text: str) -> JsonObject:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise RequestError(f"{name} is a text that is no JSON: {error}", parameter=name) from error
    if not isinstance(value, dict):
        raise RequestError(
            f"{name} holds JSON of type {type(value).__name__}; expected an object", parameter=name
        )
    return value


def choice_grammar(choices: list[str]) -> str:
    """An EBNF grammar of exactly these texts."""
    return "root ::= " + " | ".join(f'"{"".join(map(_escape, text))}"' for text in choices)


def _escape(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return f"\\u{ord(character):04x}" if ord(character) < 0x20 else character
