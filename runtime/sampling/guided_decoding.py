"""What the text of a request must look like, in TensorRT-LLM's names: plain data, checked early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dsv4_trt.errors import RequestError

KINDS = ("json", "json_object", "regex", "grammar", "structural_tag")
_EXPECTED = {
    "json": "a JSON schema as a dict, or true",
    "json_object": "true or false",
    "regex": "a regular expression as a non-empty text",
    "grammar": "a grammar in EBNF with a rule 'root', as a non-empty text",
    "structural_tag": "a dict with the key 'format'",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidedDecodingParams:
    """Exactly one of five kinds of grammar, and where in the output it begins to hold.

    Once the grammar is complete nothing but a token that ends the request may follow. `start_after`
    is the id of `</think>`: all before it, and it, is free, but may not end the request; None = the
    grammar holds from the first token on.
    """

    json: Mapping[str, Any] | bool | None = None  # a JSON schema; true = any value
    json_object: bool = False  # any JSON object
    regex: str | None = None  # the whole output matches
    grammar: str | None = None  # EBNF as xgrammar and llama.cpp write it, from the rule 'root'
    structural_tag: Mapping[str, Any] | None = None  # xgrammar's; may name tokens by id
    start_after: int | None = None

    @property
    def kind(self) -> str:
        """The name of the field that is set; only after `check`."""
        return self._given()[0]

    def check(self, vocab_size: int) -> None:
        """Raise `RequestError` for what is not exactly one well-formed grammar."""
        given = self._given()
        if len(given) != 1:
            found = "none is" if not given else " and ".join(given) + " are"
            raise RequestError(
                f"of {', '.join(KINDS)} {found} given; expected exactly one",
                parameter="guided_decoding",
            )
        (kind,) = given
        if not _is_well_formed(kind, getattr(self, kind)):
            raise RequestError(
                f"guided_decoding.{kind} is {str(getattr(self, kind))[:80]!r}; "
                f"expected {_EXPECTED[kind]}",
                parameter=f"guided_decoding.{kind}",
            )
        start = self.start_after
        if start is not None and (type(start) is not int or not 0 <= start < vocab_size):
            raise RequestError(
                f"guided_decoding.start_after is {start!r}; expected a token id from 0 to "
                f"{vocab_size - 1}, or None",
                parameter="guided_decoding.start_after",
            )

    def _given(self) -> list[str]:
        return [kind for kind in KINDS if getattr(self, kind) not in (None, False)]


def _is_well_formed(kind: str, value: object) -> bool:
    match kind:
        case "json":
            return value is True or isinstance(value, Mapping)
        case "json_object":
            return value is True
        case "structural_tag":
            return isinstance(value, Mapping) and "format" in value
        case _:
            return isinstance(value, str) and value != ""
