"""A grammar as xgrammar reads it: its kind and its text, bounded before anything is compiled."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.guided.json_keywords import check_keywords
from dsv4_trt.runtime.guided.nesting import inside, nests_deeper
from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams

MAX_CHARACTERS = 256 * 1024
MAX_DEPTH = 256  # of JSON values one within the other
ANY_OBJECT = '{"type": "object"}'


@dataclass(frozen=True, slots=True)
class GrammarSource:
    """What is compiled; equal sources give equal grammars."""

    kind: str  # "json", "regex", "grammar" or "structural_tag"
    text: str
    token_ids: frozenset[int] = frozenset()  # that it names

    @staticmethod
    def of(guided: GuidedDecodingParams) -> GrammarSource:
        """Raises `RequestError` for one that is too long, too deep, no JSON, or can not be enforced."""
        kind = guided.kind
        if kind == "json_object":
            return GrammarSource("json", ANY_OBJECT)
        given = getattr(guided, kind)
        text = given if isinstance(given, str) else _written(kind, given)
        if len(text) > MAX_CHARACTERS:
            raise refused(kind, f"has {len(text)} characters; expected {MAX_CHARACTERS} at most")
        if kind == "json":
            check_keywords(given)
        return GrammarSource(kind, text, frozenset(_token_ids(kind, given)))


def refused(kind: str, found: str) -> RequestError:
    """The error of a grammar of one kind."""
    return RequestError(f"guided_decoding.{kind} {found}", parameter=f"guided_decoding.{kind}")


def _written(kind: str, given: object) -> str:
    if nests_deeper(given, MAX_DEPTH):
        raise refused(kind, f"nests more than {MAX_DEPTH} deep; write it flatter")
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
    except (TypeError, ValueError) as error:
        raise refused(kind, f"is no JSON: {error}") from error
    return text


def _token_ids(kind: str, given: Any) -> set[int]:
    """Ids of the tokens that a grammar names, in whatever place."""
    if kind == "json":
        return set()
    if isinstance(given, str):  # EBNF: Token(1, 2); elsewhere such text names nothing
        calls = re.findall(r"Token\(([\d\s,]*)\)", given) if kind == "grammar" else []
        return {int(number) for call in calls for number in re.findall(r"\d+", call)}
    found, left = set(), [given]
    while left:
        value = left.pop()
        left += inside(value)
        if isinstance(value, dict):
            names = [value.get("token"), *_listed(value.get("trigger_tokens"))]
            found |= {name for name in names if type(name) is int}
            if isinstance(value.get("grammar"), str):
                found |= _token_ids("grammar", value["grammar"])
    return found


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
