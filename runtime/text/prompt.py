"""What may be given as a prompt: text, token ids, or a mapping with one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsv4_trt.errors import RequestError
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.runtime.text.tokenizer import Tokenizer

_EXPECTED = {"prompt": "a text", "prompt_token_ids": "a list of whole numbers"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Token ids, and the text they come from if it was text."""

    text: str | None
    token_ids: list[int]


def read_prompt(given: object, spec: ModelSpec, tokenizer: Tokenizer | None) -> Prompt:
    """Text becomes token ids, after a begin-of-sentence token; token ids stay as they are.

    Raises `RequestError` for what is no prompt, and for text where there is no tokenizer.
    """
    if isinstance(given, Mapping):
        given = _only_value(given)
    if not isinstance(given, str):
        return Prompt(text=None, token_ids=_read_ids(given))
    if tokenizer is None:
        raise RequestError(
            "a text was given and this engine has no tokenizer; give token ids, or name the folder "
            "of a tokenizer.json",
            parameter="prompt",
        )
    return Prompt(text=given, token_ids=encode_text(given, spec, tokenizer))


def encode_text(text: str, spec: ModelSpec, tokenizer: Tokenizer) -> list[int]:
    """Token ids of a text, with the begin-of-sentence token in front unless the text wrote it."""
    token_ids, bos = tokenizer.encode(text), spec.bos_token_id
    return token_ids if token_ids[:1] == [bos] else [bos, *token_ids]


def _only_value(given: Mapping[object, object]) -> object:
    if len(given) != 1 or not set(given) <= set(_EXPECTED):
        raise RequestError(
            f"a prompt has the keys {sorted(map(str, given))}; expected either 'prompt', a text, or "
            "'prompt_token_ids', a list of whole numbers",
            parameter="prompt",
        )
    ((key, value),) = given.items()
    if isinstance(value, str) != (key == "prompt"):
        raise RequestError(
            f"{key} is {str(value)[:80]!r}; expected {_EXPECTED[str(key)]}", parameter=str(key)
        )
    return value


def _read_ids(given: object) -> list[int]:
    if not isinstance(given, Sequence) or isinstance(given, bytes | bytearray | memoryview):
        raise RequestError(
            f"a prompt is {str(given)[:80]!r} of type {type(given).__name__}; expected a text, a list "
            "of token ids, or a dict with 'prompt' or 'prompt_token_ids'",
            parameter="prompt",
        )
    for token in given:
        if not is_id(token):
            raise RequestError(
                f"a prompt has the token id {token!r}; expected whole numbers of type int",
                parameter="prompt",
            )
    return list(given)


def is_id(value: object) -> bool:
    """Whether a value can be a token id: a whole number, and no truth value."""
    return isinstance(value, int) and not isinstance(value, bool)
