"""Prompts from a file: conversations in ShareGPT's form, prompts, or lists of messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.bench.ask import Ask
from dsv4_trt.runtime.bench.vocabulary import Encoder
from dsv4_trt.runtime.text.prompt import is_id

ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}
ROLES |= {"system": "system"}
EXPECTED = "expected an object with 'prompt', 'messages' or 'conversations'"


def read_dataset(path: Path, output_len: int | None, encoder: Encoder | None) -> list[Ask]:
    """All prompts of a file: JSON lines, or one JSON list as ShareGPT's own files are.

        {"prompt": TEXT or TOKEN_IDS, "max_tokens": 64}
        {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 64}
        {"conversations": [{"from": "human", "value": TEXT}, {"from": "gpt", "value": TEXT}]}

    `output_len` stands for every `max_tokens` when it is given. A conversation is asked up to its first
    answer, for as many tokens as that answer has, which takes an `encoder`; one without an answer is
    left out.

    Raises `ConfigError` that names file and line for anything else.
    """
    asks: list[Ask] = []
    for where, row in _rows(path):
        try:
            ask = _ask(row, output_len, encoder)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        if ask is not None:
            asks.append(ask)
    if not asks:
        raise ConfigError(f"{path} has no prompts; {EXPECTED} in each line")
    return asks


def pick(asks: list[Ask], count: int, seed: int) -> list[Ask]:
    """`count` of the prompts in a random order, each as often as any other, give or take one."""
    rng = np.random.default_rng(seed)
    picked: list[Ask] = []
    while len(picked) < count:
        picked += [asks[i] for i in rng.permutation(len(asks)).tolist()]
    return picked[:count]


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"dataset {path} can not be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"dataset {path} is no UTF-8 text: {error}") from error
    if text.lstrip()[:1] == "[":
        rows = _json(text, str(path))
        yield from ((f"{path}[{at}]", row) for at, row in enumerate(rows))
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{path}:{number}", _json(line, f"{path}:{number}")


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where} is no JSON: {error}") from error


def _ask(row: Any, output_len: int | None, encoder: Encoder | None) -> Ask | None:
    if not isinstance(row, Mapping):
        raise ConfigError(f"{str(row)[:80]!r}; {EXPECTED}")
    if "conversations" in row:
        return _conversation(row["conversations"], output_len, encoder)
    if "messages" in row:
        messages = row["messages"]
        if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
            raise ConfigError(f"messages is {str(messages)[:80]!r}; expected a list of objects")
        return Ask(messages=messages, max_tokens=_max_tokens(row, output_len))
    prompt = row.get("prompt")
    if isinstance(prompt, str) and prompt:
        return Ask(text=prompt, max_tokens=_max_tokens(row, output_len))
    if isinstance(prompt, list) and prompt and all(map(is_id, prompt)):
        return Ask(token_ids=prompt, max_tokens=_max_tokens(row, output_len))
    raise ConfigError(f"the keys are {sorted(row)} and prompt {str(prompt)[:80]!r}; {EXPECTED}")


def _max_tokens(row: Mapping[str, Any], output_len: int | None) -> int:
    found: Any = row.get("max_tokens") if output_len is None else output_len
    if not is_id(found) or found < 1:
        raise ConfigError(
            f"max_tokens is {found!r}; expected a whole number of at least 1, or give --output_len"
        )
    return int(found)


def _conversation(turns: Any, output_len: int | None, encoder: Encoder | None) -> Ask | None:
    """The turns before the first answer; None without one."""
    messages: list[dict[str, Any]] = []
    if not isinstance(turns, list):
        raise ConfigError(f"conversations is {str(turns)[:80]!r}; expected a list of turns")
    for turn in turns:
        role = ROLES.get(str(turn.get("from"))) if isinstance(turn, Mapping) else None
        if role is None or not isinstance(turn.get("value"), str):
            raise ConfigError(
                f"a turn is {str(turn)[:80]!r}; expected 'from', one of {', '.join(ROLES)}, and "
                "'value', a text"
            )
        if role == "assistant":
            return _before(messages, turn["value"], output_len, encoder)
        messages.append({"role": role, "content": turn["value"]})
    return None


def _before(
    messages: list[dict[str, Any]], answer: str, output_len: int | None, encoder: Encoder | None
) -> Ask | None:
    if not messages:
        return None
    if output_len is None:
        if encoder is None:
            raise ConfigError(
                "how long an answer is takes a tokenizer; give --engine_dir, or --output_len"
            )
        output_len = len(encoder.encode(answer))
    return Ask(messages=messages, max_tokens=output_len) if output_len else None
