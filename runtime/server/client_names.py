"""Errors of a turn in the client's own names, where its API has others than V4's messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dsv4_trt.errors import RequestError

PATH = "path"  # a key of V4's messages that the encoder does not look at: where the client has it
_MESSAGE = re.compile(r"messages\[(\d+)\]")
_GUIDED = "guided_decoding"


@contextmanager
def in_client_names(
    messages: Sequence[dict[str, Any]], *, prompt: str, guided: str
) -> Iterator[None]:
    """In this block a `RequestError` about one of the messages, about their length or a grammar is renamed.

    `prompt` is the field that holds the conversation, `guided` the one with the grammar.
    """
    try:
        yield
    except RequestError as error:
        raise _renamed(error, messages, prompt, guided) from error


def _renamed(
    error: RequestError, messages: Sequence[dict[str, Any]], prompt: str, guided: str
) -> RequestError:
    parameter, text = error.parameter or "", str(error)
    if parameter == "messages":
        return type(error)(text, parameter=prompt)
    if parameter.startswith(_GUIDED):
        return type(error)(text, parameter=guided)
    found = _MESSAGE.match(parameter)
    path = messages[int(found[1])].get(PATH) if found else None
    if found is None or path is None:
        return error
    return type(error)(text.replace(found[0], path), parameter=path)
