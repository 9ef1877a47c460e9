"""Turns to segments: the markers around each, and whose reasoning is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsv4_trt.runtime.chat.conversation import USER_ROLES, Turn
from dsv4_trt.runtime.chat.markers import (
    ASSISTANT,
    END_THINK,
    EOS,
    LATEST_REMINDER,
    PARAGRAPH,
    TASKS,
    THINK,
    USER,
)
from dsv4_trt.runtime.chat.prompt_texts import response_format_text, tools_text
from dsv4_trt.runtime.chat.segments import Segment
from dsv4_trt.runtime.chat.tool_calls import calls_text

_LEADS = {"user": USER, "developer": USER, "latest_reminder": LATEST_REMINDER}


def render_turns(
    turns: Sequence[Turn], *, thinking: bool, drops: bool
) -> Iterator[tuple[Turn, list[Segment]]]:
    """Each turn that is kept, with its segments.

    With `drops` the last user's turn is the first that is thought about: before it reasoning is left
    out, and so are a developer's turns.
    """
    last_user = max((i for i, turn in enumerate(turns) if turn.role in USER_ROLES), default=-1)
    kept = [
        (turn, thinking and (not drops or i >= last_user))
        for i, turn in enumerate(turns)
        if not (drops and turn.role == "developer" and i < last_user)
    ]
    for i, (turn, thinks) in enumerate(kept):
        before = kept[i - 1][0] if i else None
        after = kept[i + 1][0] if i + 1 < len(kept) else None
        segments = _head(turn)
        if turn.role == "assistant":
            segments += _answer(turn, thinks=thinks and (before is None or before.task is None))
        if after is None or after.role == "assistant":
            segments += _tail(turn, thinking=thinking, thinks=thinks)
        yield turn, segments


def _head(turn: Turn) -> list[Segment]:
    """The turn's marker and text; an answer has none of the first and its text comes later."""
    if turn.role == "assistant":
        return []
    segments = [_marker(_LEADS[turn.role])] if turn.role in _LEADS else []
    segments.append(_text(PARAGRAPH.join(turn.texts)))
    if turn.tools:
        segments += tools_text([tool.schema for tool in turn.tools])
    if turn.response_format is not None:
        segments += response_format_text(turn.response_format)
    return segments


def _answer(turn: Turn, *, thinks: bool) -> list[Segment]:
    segments = [_text(turn.reasoning), _marker(END_THINK)] if thinks else []
    segments += map(_text, turn.texts)
    if turn.calls:
        segments += calls_text(turn.calls)
    if not turn.wo_eos:
        segments.append(_marker(EOS))
    return segments


def _tail(turn: Turn, *, thinking: bool, thinks: bool) -> list[Segment]:
    """What asks for an answer after a turn: a task's marker, or the assistant's."""
    if turn.task == "action":  # decided at once: there is no reasoning to keep or to leave out
        opening = THINK if thinking else END_THINK
        return [_marker(ASSISTANT), _marker(opening), _marker(TASKS["action"])]
    if turn.task is not None:
        return [_marker(TASKS[turn.task])]
    if turn.role in USER_ROLES:
        return [_marker(ASSISTANT), _marker(THINK if thinks else END_THINK)]
    return []


def _marker(text: str) -> Segment:
    return Segment(text, is_markup=True)


def _text(text: str) -> Segment:
    return Segment(text, is_markup=False)
