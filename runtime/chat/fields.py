"""Reads the fields of messages; what is not of the type it should be is refused by its path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.chat.markers import PARAGRAPH
from dsv4_trt.runtime.text.surrogates import check_unicode

_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}


def refuse(path: str, found: object, expected: str) -> NoReturn:
    """Raise `RequestError` for the field at `path`."""
    shown = repr(found)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    raise RequestError(f"{path} is {shown}; expected {expected}", parameter=path)


def read(kind: type, value: object, path: str) -> Any:
    """The value, which has to be of this type."""
    if not isinstance(value, kind):
        refuse(path, value, _KINDS[kind])
    if isinstance(value, str):
        check_unicode(value, path)
    return value


def read_optional(kind: type, holder: Mapping[str, Any], key: str, path: str) -> Any:
    """The value of a key, or None where it is absent or null."""
    value = holder.get(key)
    return None if value is None else read(kind, value, f"{path}.{key}")


def to_json(value: Any, path: str) -> str:
    """The value as JSON, spelled as the model saw it in training."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(
            f"{path} can not be written as JSON: {error}; expected JSON data", parameter=path
        ) from error
    check_unicode(text, path)
    return text


def read_text(value: object, path: str, *, keep_place: bool = False) -> str:
    """A text, or a list of parts, whose texts are joined by an empty line.

    Parts of another type are refused; with `keep_place` a note takes their place.
    """
    if not isinstance(value, list):
        if not isinstance(value, str):
            refuse(path, value, "a text, or a list of text parts")
        check_unicode(value, path)
        return value
    texts = []
    for i, part in enumerate(value):
        at = f"{path}[{i}]"
        kind = read(dict, part, at).get("type")
        if kind == "text":
            texts.append(read(str, part.get("text"), f"{at}.text"))
        elif keep_place and isinstance(kind, str):
            texts.append(f"[Unsupported {kind}]")
        else:
            refuse(f"{at}.type", kind, "'text': this model reads nothing else")
    return PARAGRAPH.join(texts)
