"""Events of an answer as the `delta` objects of chunks: neighbours of a kind joined, in order."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any, TypeAlias

from dsv4_trt.runtime.chat.events import CallArguments, CallStart, Content, Event, Reasoning

Delta: TypeAlias = dict[str, Any]


def new_call_id() -> str:
    """An id for a call: V4's format has none, and clients need one to answer it."""
    return "call_" + secrets.token_hex(12)


def deltas(events: Iterable[Event]) -> list[Delta]:
    """The deltas, in the order of the events; the end of a call is told by what follows."""
    found: list[Delta] = []
    for event in events:
        delta = _delta(event)
        if delta is not None and not (found and _joined(found[-1], delta)):
            found.append(delta)
    return found


def _delta(event: Event) -> Delta | None:
    match event:
        case Content(text=text):
            return {"content": text}
        case Reasoning(text=text):
            return {"reasoning_content": text}
        case CallStart(index=index, name=name):
            function = {"name": name, "arguments": ""}
            call = {"index": index, "id": new_call_id(), "type": "function", "function": function}
            return {"tool_calls": [call]}
        case CallArguments(index=index, text=text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
    return None


def _joined(last: Delta, delta: Delta) -> bool:
    """Append `delta` to `last` if it goes on with the same text, or the same call."""
    if last.keys() != delta.keys():
        return False
    if "tool_calls" not in delta:
        (key,) = delta
        last[key] += delta[key]
        return True
    (before,), (call,) = last["tool_calls"], delta["tool_calls"]
    if before["index"] != call["index"]:
        return False
    before["function"]["arguments"] += call["function"]["arguments"]
    return True
