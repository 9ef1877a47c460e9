"""A conversation in Anthropic's blocks as V4's messages: what the model said encodes as it was said."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.chat.markers import PARAGRAPH
from dsv4_trt.runtime.server.anthropic.blocks import (
    Message,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from dsv4_trt.runtime.server.client_names import PATH
from dsv4_trt.runtime.server.sealed_text import unseal

# Claude Code's first system block: not for the model, and another one in every request, so that no
# prompt would share a prefix with the last one
BILLING = "x-anthropic-billing-header:"


def system_messages(blocks: Iterable[TextBlock]) -> list[dict[str, Any]]:
    """The system prompt as one message, or none."""
    texts = [block.text for block in blocks if not block.text.startswith(BILLING)]
    system = {"role": "system", "content": PARAGRAPH.join(texts), PATH: "system"}
    return [system] if texts else []


def v4_messages(messages: list[Message]) -> list[dict[str, Any]]:
    """V4's messages: assistant turns in a row become one, tool results messages of their own.

    A system message within the conversation becomes part of the user's turn: V4's format has no other
    place for it. Raises `RequestError` for a block in a role that can not have it, and for the result
    of a call that nobody made.
    """
    made: list[dict[str, Any]] = []
    called: set[str] = set()
    for number, message in enumerate(messages):
        path = f"messages[{number}]"
        if message.role == "assistant":
            _add_assistant(made, message, called, path)
        else:
            made += _user_side(message, called, path)
    return [_joined(message) for message in made]


def _joined(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose texts, if they are the assistant's, are one each."""
    if message["role"] != "assistant":
        return message
    names = ("content", "reasoning_content")
    return message | {name: "".join(message[name]) for name in names}


def _add_assistant(
    made: list[dict[str, Any]], message: Message, called: set[str], path: str
) -> None:
    if not made or made[-1]["role"] != "assistant":
        empty = {"role": "assistant", "content": [], "reasoning_content": [], "tool_calls": []}
        made.append(empty | {PATH: path})
    turn = made[-1]
    for index, block in enumerate(message.content):
        match block:
            case TextBlock():
                turn["content"].append(block.text)
            case ThinkingBlock():
                turn["reasoning_content"].append(block.thinking or unseal(block.signature) or "")
            case RedactedThinkingBlock():
                pass  # of another model: nothing that V4 could read
            case ToolUseBlock():
                _add_call(turn, block, called, f"{path}.content[{index}].id")
            case ToolResultBlock():
                raise _misplaced(block.type, "assistant", f"{path}.content[{index}]")


def _add_call(turn: dict[str, Any], block: ToolUseBlock, called: set[str], path: str) -> None:
    if block.id in called:
        raise RequestError(
            f"{path} is {block.id!r}, which another tool_use has; expected an id for each call",
            parameter=path,
        )
    called.add(block.id)
    arguments = json.dumps(block.input, ensure_ascii=False)
    function = {"name": block.name, "arguments": arguments}
    turn["tool_calls"].append({"id": block.id, "type": "function", "function": function})


def _user_side(message: Message, called: set[str], path: str) -> list[dict[str, Any]]:
    """Tool results and texts of one message, in their order."""
    made: list[dict[str, Any]] = []
    for index, block in enumerate(message.content):
        where = f"{path}.content[{index}]"
        if isinstance(block, TextBlock):
            made.append({"role": "user", "content": block.text, PATH: where})
        elif isinstance(block, ToolResultBlock) and message.role == "user":
            made.append(_result(block, called, f"{where}.tool_use_id") | {PATH: where})
        else:
            raise _misplaced(block.type, message.role, where)
    return made or [{"role": "user", "content": "", PATH: path}]


def _result(block: ToolResultBlock, called: set[str], path: str) -> dict[str, Any]:
    if block.tool_use_id not in called:
        raise RequestError(
            f"{path} is {block.tool_use_id!r}; expected the id of a tool_use block before it",
            parameter=path,
        )
    text = PARAGRAPH.join(part.text for part in block.content)
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": _told(text, block)}


def _told(text: str, block: ToolResultBlock) -> str:
    """V4's results have no mark for an error: say it in words, unless the text begins by saying so."""
    if not block.is_error or "error" in text[:40].lower():
        return text
    return f"Error: {text}"


def _misplaced(kind: str, role: str, path: str) -> RequestError:
    return RequestError(
        f"{path} is a {kind} block in a message of the role '{role}'", parameter=path
    )
