"""Messages to the prompt that V4 was trained on, as the encoder of its preview release writes it.

A prompt is segments, markup and text. `Markup.encode` turns these into token ids in which text is never
markup; `encode_messages` joins them to a string, in which the two can not be told apart any more.
"""

from __future__ import annotations

from typing import Any

from dsv4_trt.contract import ENCODER_REVISION
from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.chat.conversation import Turn, read_messages
from dsv4_trt.runtime.chat.fields import read, refuse
from dsv4_trt.runtime.chat.markers import BOS
from dsv4_trt.runtime.chat.prompt_texts import EFFORT_MAX
from dsv4_trt.runtime.chat.render import render_turns
from dsv4_trt.runtime.chat.segments import Segment, join_text
from dsv4_trt.runtime.chat.tools import Tool, read_format, read_tools

Message = dict[str, Any]
EFFORTS = (None, "high", "max")


def encode_messages(
    messages: list[Message],
    tools: list[dict[str, Any]] | None = None,
    thinking: bool = False,
    **options: Any,
) -> str:
    """The prompt of a conversation as text; options as in `encode_segments`."""
    return "".join(s.text for s in encode_segments(messages, tools, thinking, **options))


def encode_segments(
    messages: list[Message],
    tools: list[dict[str, Any]] | None = None,
    thinking: bool = False,
    *,
    drop_thinking: bool = True,
    reasoning_effort: str | None = None,
    context: list[Message] | None = None,
    add_default_bos_token: bool = True,
    response_format: dict[str, Any] | None = None,
    encoder_revision: str = ENCODER_REVISION,
) -> list[Segment]:
    """The prompt of a conversation, markup and text kept apart.

    `messages` have the fields of OpenAI's and V4's own: role, content, reasoning_content, tool_calls,
    tool_call_id, tools, response_format, task, wo_eos (the answer goes on: no end of sentence after
    it). Others are not looked at. `tools` and `response_format` join the system message in front, which
    is made where there is none. `drop_thinking` leaves out the reasoning before the last user's turn,
    unless a message has tools. `reasoning_effort` "max" adds an instruction while thinking, "high"
    nothing. `context` are the messages before these, whose prompt is there already.

    Raises `RequestError`, with the path of the field, for anything illegal.
    """
    read(bool, thinking, "thinking")
    read(bool, drop_thinking, "drop_thinking")
    read(bool, add_default_bos_token, "add_default_bos_token")
    if reasoning_effort not in EFFORTS:
        refuse("reasoning_effort", reasoning_effort, "'high', 'max' or None")
    if encoder_revision != ENCODER_REVISION:
        refuse("encoder_revision", encoder_revision, f"{ENCODER_REVISION!r}, the only one known")
    before = _locate([] if context is None else context, "context")
    turns = _read_turns(before, _locate(messages, "messages"))
    turns = _add_to_system(
        turns, read_tools(tools, "tools"), read_format(response_format, "response_format")
    )
    segments: list[Segment] = []
    if not before:
        if add_default_bos_token:
            segments.append(Segment(BOS, is_markup=True))
        if thinking and reasoning_effort == "max" and turns:
            segments.append(Segment(EFFORT_MAX, is_markup=False))
    drops = thinking and drop_thinking and not any(turn.tools for turn in turns)
    for turn, rendered in render_turns(turns, thinking=thinking, drops=drops):
        if turn.first >= len(before):
            segments += rendered
    return join_text(segments)


def _locate(messages: object, path: str) -> list[tuple[str, object]]:
    """Each message with its path."""
    return [(f"{path}[{i}]", message) for i, message in enumerate(read(list, messages, path))]


def _read_turns(before: list[tuple[str, object]], new: list[tuple[str, object]]) -> list[Turn]:
    """All turns; the new messages have to begin one."""
    turns = read_messages([*before, *new])
    if new and all(turn.first != len(before) for turn in turns):
        raise RequestError(
            "context ends in a user's turn that messages[0] goes on with; expected context to end "
            "where a turn ends: before the user's texts and tool results, or after the answer to them",
            parameter="context",
        )
    return turns


def _add_to_system(turns: list[Turn], tools: list[Tool], response_format: str | None) -> list[Turn]:
    """The turns with tools and format in the system message in front."""
    if not tools and response_format is None:
        return turns
    has_system = bool(turns) and turns[0].role == "system"
    system = turns[0] if has_system else Turn(role="system", texts=[""], first=0)
    for name, given, there in (
        ("tools", tools, system.tools),
        ("response_format", response_format, system.response_format),
    ):
        if given and there:
            raise RequestError(
                f"{name} are given and the system message has some; expected one of them",
                parameter=name,
            )
    system.tools = system.tools or tools
    system.response_format = system.response_format or response_format
    return [system, *turns[has_system:]]
