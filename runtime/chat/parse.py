"""A whole output to a message, strictly: anything that the format does not have is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from dsv4_trt.errors import CompletionError
from dsv4_trt.runtime.chat.markers import BLOCK_LEAD, BOS, DSML, END_THINK, EOS, THINK
from dsv4_trt.runtime.chat.tools import read_tools

_BLOCK = f"{BLOCK_LEAD}{DSML}tool_calls>\n"
_BLOCK_END = re.compile(f"</{DSML}tool_calls>")
_NO_DSML = f"(?:(?!{DSML}).)*?"
_CALL = re.compile(f'<{DSML}invoke name="({_NO_DSML})">\n\n?', re.DOTALL)
_CALL_END = re.compile(f"</{DSML}invoke>\n")
_KEY = re.compile(f'<{DSML}parameter name="({_NO_DSML})" string="', re.DOTALL)
_VALUE = re.compile(f'(true|false)">(.*?)</{DSML}parameter', re.DOTALL)
_VALUE_END = re.compile(">\n")


def parse_completion(
    text: str, thinking: bool = False, tools: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """The assistant's message that a whole output, its end of sentence included, says.

    `thinking`: the prompt ended in `<think>`, so that the output begins with reasoning. With `tools`,
    in OpenAI's form, calls of others are refused too. The message has OpenAI's form: role, content,
    reasoning_content, tool_calls; arguments hold values as the model spelled them. Raises
    `CompletionError`.
    """
    reasoning, rest = "", text
    if thinking:
        reasoning, found, rest = text.partition(END_THINK)
        if not found:
            _refuse(text, len(text), f"{END_THINK} after the reasoning")
    content, found, after = rest.partition(_BLOCK)
    calls: list[tuple[str, str]] = []
    if found:
        calls, at = _read_block(text, len(text) - len(after))
        if text[at:] not in ("", EOS):
            _refuse(text, at, f"{EOS}, or nothing, after tool calls")
    elif not content.endswith(EOS):
        _refuse(text, len(text), f"{EOS} at the end")
    else:
        content = content.removesuffix(EOS)
    for marker in (BOS, EOS, THINK, END_THINK, DSML):
        for part, start in ((reasoning, 0), (content, len(text) - len(rest))):
            if marker in part:
                _refuse(text, start + part.index(marker), f"no {marker} in text")
    if tools is not None:
        _check_names([name for name, _ in calls], tools)
    functions = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return {
        "role": "assistant",
        "content": content,
        "reasoning_content": reasoning,
        "tool_calls": [{"type": "function", "function": function} for function in functions],
    }


def _read_block(text: str, at: int) -> tuple[list[tuple[str, str]], int]:
    """Name and arguments of each call of a block, and where the block ends."""
    calls = []
    while not (end := _BLOCK_END.match(text, at)):
        call = _expect(_CALL, text, at, "a call or the end of the block")
        arguments, at = _read_arguments(text, call.end())
        calls.append((call[1], arguments))
        at = _expect(_CALL_END, text, at, "a parameter or the end of the call").end()
    return calls, end.end()


def _read_arguments(text: str, at: int) -> tuple[str, int]:
    """The JSON object of the parameters from here on, and where they end."""
    members: dict[str, str] = {}
    while key := _KEY.match(text, at):
        value = _expect(_VALUE, text, key.end(), "true or false, and a value with its end")
        if key[1] in members:
            _refuse(text, at, f"parameter {key[1]!r} once")
        members[key[1]] = value[2] if value[1] == "false" else _quote(value[2])
        at = _expect(_VALUE_END, text, value.end(), "the end of the parameter's line").end()
    return "{" + ", ".join(f"{_quote(key)}: {value}" for key, value in members.items()) + "}", at


def _check_names(names: Sequence[str], tools: list[dict[str, Any]]) -> None:
    known = [tool.name for tool in read_tools(tools, "tools")]
    for name in names:
        if name not in known:
            raise CompletionError(f"the output calls {name!r}; expected one of the tools {known}")


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _expect(pattern: re.Pattern[str], text: str, at: int, expected: str) -> re.Match[str]:
    return pattern.match(text, at) or _refuse(text, at, expected)


def _refuse(text: str, at: int, expected: str) -> NoReturn:
    shown = repr(text[at : at + 40]) if at < len(text) else "over"
    raise CompletionError(f"the output is {shown} at character {at}; expected {expected}")
