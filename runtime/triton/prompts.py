"""The prompts of one request: texts, rows of token ids, or conversations."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.chat.encoding import encode_segments
from dsv4_trt.runtime.triton.fields import Fields
from dsv4_trt.runtime.triton.model_text import ModelText

PromptInput: TypeAlias = str | list[int]
_KINDS = ("text", "input_ids", "messages")
_OF_MESSAGES = ("tools", "thinking", "reasoning_effort")
THINKING = True  # where a conversation does not say


def read_prompts(fields: Fields, text: ModelText) -> list[PromptInput]:
    """The prompts of a request; raises `RequestError` for none, and for two kinds of them."""
    given = [key for key in _KINDS if key in fields]
    if len(given) != 1:
        found = " and ".join(map(fields.name, given)) or "no prompt"
        raise RequestError(
            f"{found} was given; expected one of text_input, input_ids and messages",
            parameter="text_input",
        )
    (kind,) = given
    if fields.array(kind).size == 0:
        raise fields.error(kind, "is empty; expected at least one prompt")
    if kind == "messages":
        return _read_conversations(fields, text)
    for key in _OF_MESSAGES:
        if key in fields:
            raise fields.error(key, f"belongs to messages, and {fields.name(kind)} was given")
    return fields.values("text") if kind == "text" else _read_ids(fields)


def read_thinking(fields: Fields, num_prompts: int) -> list[bool]:
    """Whether each prompt ends where the model begins to think."""
    if "messages" not in fields:
        return [False] * num_prompts
    if "thinking" not in fields:
        return [THINKING] * num_prompts
    return fields.for_each("thinking", num_prompts)


def _read_ids(fields: Fields) -> list[PromptInput]:
    array = fields.array("input_ids")
    rows = array.reshape(1, -1) if array.ndim == 1 else array
    lengths = [rows.shape[1]] * len(rows)
    if "input_lengths" in fields:
        lengths = fields.for_each("input_lengths", len(rows))
    for length in lengths:
        if not 0 <= length <= rows.shape[1]:
            raise fields.error(
                "input_lengths", f"has {length}; input_ids has rows of {rows.shape[1]} ids"
            )
    return [row[:length].tolist() for row, length in zip(rows, lengths, strict=True)]


def _read_conversations(fields: Fields, text: ModelText) -> list[PromptInput]:
    """Conversations in OpenAI's JSON to the token ids of V4's format."""
    markup, tokenizer = text.need_markup("messages"), text.need_tokenizer("messages")
    conversations = fields.values("messages")
    num = len(conversations)
    tools = fields.for_each("tools", num) if "tools" in fields else [""] * num
    efforts = [None] * num
    if "reasoning_effort" in fields:
        efforts = [effort or None for effort in fields.for_each("reasoning_effort", num)]
    thinking = read_thinking(fields, num)
    prompts: list[PromptInput] = []
    for said, tools_text, thinks, effort in zip(
        conversations, tools, thinking, efforts, strict=True
    ):
        segments = encode_segments(
            _read_json("messages", said),
            _read_json("tools", tools_text) if tools_text else None,
            thinks,
            reasoning_effort=effort,
        )
        prompts.append(markup.encode(segments, tokenizer))
    return prompts


def _read_json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(
            f"{name} is no JSON ({error}); expected a list", parameter=name
        ) from None
