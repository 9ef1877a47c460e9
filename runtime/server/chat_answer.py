"""What a chat turn brings: its news of a step, and a whole answer put together from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dsv4_trt.runtime.chat.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Event,
    Reasoning,
)
from dsv4_trt.runtime.sampling.row_state import SampledToken


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDelta:
    """News of one of a turn's sequences."""

    index: int
    events: list[Event]
    tokens: list[SampledToken]
    num_reasoning: int = 0  # the first of the tokens, up to and with the end of thinking
    # stop, length, tool_calls, cancelled, timeout; None: it goes on
    finish_reason: str | None = None
    stop_reason: str | int | None = None  # the stop string or token id that ended it


NO_NEWS = ChatDelta(index=0, events=[], tokens=[])


@dataclass(slots=True)
class Call:
    """A tool call; `arguments` is JSON text."""

    name: str
    arguments: str = ""


@dataclass(slots=True, kw_only=True)
class ChatAnswer:
    """One sequence of a turn as a whole."""

    index: int
    reasoning: str = ""
    content: str = ""
    calls: list[Call] = field(default_factory=list)
    tokens: list[SampledToken] = field(default_factory=list)
    num_reasoning: int = 0  # of the tokens, as in `ChatDelta`
    finish_reason: str = "stop"
    stop_reason: str | int | None = None

    @staticmethod
    def join(index: int, deltas: Sequence[ChatDelta]) -> ChatAnswer:
        """The answer that a sequence's deltas make."""
        answer = ChatAnswer(index=index)
        events = [event for delta in deltas for event in delta.events]
        answer.reasoning = "".join(e.text for e in events if isinstance(e, Reasoning))
        answer.content = "".join(e.text for e in events if isinstance(e, Content))
        answer.calls = _whole_calls(events)
        for delta in deltas:
            answer.tokens += delta.tokens
            answer.num_reasoning += delta.num_reasoning
            if delta.finish_reason is not None:
                answer.finish_reason = delta.finish_reason
                answer.stop_reason = delta.stop_reason
        return answer


def _whole_calls(events: Sequence[Event]) -> list[Call]:
    """The calls that came to their end: one that was cut off or broken must not be run."""
    calls: dict[int, Call] = {}
    ended = set()
    for event in events:
        match event:
            case CallStart(index=index, name=name):
                calls[index] = Call(name)
            case CallArguments(index=index, text=text):
                calls[index].arguments += text
            case CallEnd(index=index):
                ended.add(index)
    return [call for index, call in calls.items() if index in ended]
