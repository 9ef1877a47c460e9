"""A list of messages as turns: checked, tools and formats put in, results and user texts joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.chat.fields import read, read_optional, read_text, refuse
from dsv4_trt.runtime.chat.markers import TASKS
from dsv4_trt.runtime.chat.tool_calls import ToolCall, read_calls
from dsv4_trt.runtime.chat.tools import Tool, read_format, read_tools

ROLES = ("system", "developer", "user", "assistant", "tool", "latest_reminder")
USER_ROLES = ("user", "developer")
_WITH_TOOLS = ("system", "developer")
_WITH_TASK = ("user", "developer", "assistant")


@dataclass(slots=True, kw_only=True)
class Turn:
    """What one marker of a role stands before. Roles are those of messages, without "tool"."""

    role: str
    texts: list[str]  # joined by an empty line
    first: int  # the message that it begins with
    tools: list[Tool] = field(default_factory=list)
    response_format: str | None = None  # JSON
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    task: str | None = None
    wo_eos: bool = False


def read_messages(messages: Sequence[tuple[str, object]]) -> list[Turn]:
    """Read messages, each given with its path, into turns.

    Results of tools become texts of a user's turn, in the order of the calls; a user's texts that
    follow one another are one turn, unless a task stands between. Raises `RequestError` with the path
    of what is illegal.
    """
    turns: list[Turn] = []
    calls: dict[str | None, int] = {}  # number of each call of the newest answer, by its id
    results: dict[int, int] = {}  # call's number of each result, by its place in the newest turn
    for i, (at, given) in enumerate(messages):
        message = read(dict, given, at)
        role = message.get("role")
        if role not in ROLES:
            refuse(f"{at}.role", role, f"one of {', '.join(ROLES)}")
        turn = _read_result(message, at, i) if role == "tool" else _read_turn(message, role, at, i)
        if not _continues(turns, turn):
            _sort_results(turns, results)
            turns.append(turn)
        else:
            turns[-1].texts += turn.texts
            turns[-1].task = turn.task
        if role == "tool":
            results[len(turns[-1].texts) - 1] = _call_number(message, calls, at)
        elif role == "assistant":
            calls = {call.id: number for number, call in enumerate(turn.calls)}
    _sort_results(turns, results)
    return turns


def _read_turn(message: Mapping[str, Any], role: str, path: str, index: int) -> Turn:
    """A turn of one message."""
    content = message.get("content")
    if content is None and role == "assistant":
        content = ""
    text = read_text(content, f"{path}.content")
    if role == "developer" and not text:
        refuse(f"{path}.content", text, "a text that is not empty")
    turn = Turn(role=role, texts=[text], first=index, task=_read_task(message, role, path))
    if role in _WITH_TOOLS:
        turn.tools = read_tools(message.get("tools"), f"{path}.tools")
        turn.response_format = read_format(
            message.get("response_format"), f"{path}.response_format"
        )
    elif message.get("tools"):
        refuse(
            f"{path}.tools", message["tools"], f"tools on messages of {' and '.join(_WITH_TOOLS)}"
        )
    if role == "assistant":
        turn.reasoning = read_optional(str, message, "reasoning_content", path) or ""
        turn.calls = read_calls(message.get("tool_calls"), f"{path}.tool_calls")
        turn.wo_eos = bool(read_optional(bool, message, "wo_eos", path))
    return turn


def _read_result(message: Mapping[str, Any], path: str, index: int) -> Turn:
    """A user's turn of one result."""
    text = read_text(message.get("content"), f"{path}.content", keep_place=True)
    return Turn(role="user", texts=[f"<tool_result>{text}</tool_result>"], first=index)


def _read_task(message: Mapping[str, Any], role: str, path: str) -> str | None:
    task = message.get("task")
    if task is None:
        return None
    if role not in _WITH_TASK:
        refuse(f"{path}.task", task, f"a task on messages of {', '.join(_WITH_TASK)} only")
    if not isinstance(task, str) or task not in TASKS:
        refuse(f"{path}.task", task, f"one of {', '.join(TASKS)}")
    return task


def _continues(turns: Sequence[Turn], turn: Turn) -> bool:
    """Whether a turn goes on with the one before it."""
    return bool(turns) and turn.role == turns[-1].role == "user" and turns[-1].task is None


def _call_number(message: Mapping[str, Any], calls: dict[str | None, int], path: str) -> int:
    """Which call a result belongs to; 0 where ids do not tell."""
    call_id = read_optional(str, message, "tool_call_id", path)
    if not calls:
        raise RequestError(
            f"{path} is the result of a tool, and the assistant's message before it has no "
            "tool_calls; expected the message with the call before its result",
            parameter=path,
        )
    if call_id is None or (None in calls and len(calls) == 1):
        return 0
    if call_id not in calls:
        refuse(f"{path}.tool_call_id", call_id, f"one of the calls before it: {list(calls)}")
    return calls[call_id]


def _sort_results(turns: Sequence[Turn], results: dict[int, int]) -> None:
    """Put the newest turn's results in the order of their calls; other texts keep their places."""
    places = list(results)
    texts = turns[-1].texts if turns else []
    in_order = [texts[place] for place in sorted(places, key=lambda place: results[place])]
    for place, text in zip(places, in_order, strict=True):
        texts[place] = text
    results.clear()
