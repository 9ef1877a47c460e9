"""An answer as a stream of Anthropic's events: one block at a time, each begun, filled and ended.

```
message_start ping (content_block_start content_block_delta* content_block_stop)* message_delta message_stop
```
"""

from __future__ import annotations

from typing import Any

from dsv4_trt.runtime.chat.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Event,
    Reasoning,
)
from dsv4_trt.runtime.server.anthropic.message import message, thinking_signature, tool_use, usage
from dsv4_trt.runtime.server.json_answer import named_event
from dsv4_trt.runtime.server.sse import Run


class MessageEvents:
    """The events of one message, in order, from the parser's events."""

    def __init__(self, model: str, *, shows_thinking: bool) -> None:
        self._model = model
        self._shows_thinking = shows_thinking
        self._index = -1  # of the last block that was begun
        self._open: str | None = None  # type of the block that is not ended
        self._thinking: list[str] = []  # of the block, for its signature

    def start(self, run: Run) -> str:
        """What is sent as soon as the request is accepted, before anything of it is computed."""
        begun = message(
            self._model,
            [],
            stop_reason=None,
            stop_sequence=None,
            usage=usage(run),
        )
        return named_event({"type": "message_start", "message": begun}) + named_event(
            {"type": "ping"}
        )

    def take(self, events: list[Event]) -> str:
        """What the parser's events of a step add."""
        return "".join(self._one(event) for event in events)

    def end(self, stop: dict[str, Any], run: Run) -> str:
        """End the open block and the message."""
        return (
            self._close()
            + named_event({"type": "message_delta", "delta": stop, "usage": usage(run)})
            + named_event({"type": "message_stop"})
        )

    def _one(self, event: Event) -> str:
        match event:
            case Reasoning(text=text):
                return self._add("thinking", text)
            case Content(text=text):
                return self._add("text", text)
            case CallStart(name=name):
                return self._begin(tool_use(name))
            case CallArguments(text=text):
                return self._delta({"type": "input_json_delta", "partial_json": text})
            case CallEnd():
                return self._close()
        raise AssertionError(f"{event!r} is no event of the parser")

    def _add(self, kind: str, text: str) -> str:
        begun = "" if self._open == kind else self._begin({"type": kind, kind: ""})
        if kind == "thinking":
            self._thinking.append(text)
            if not self._shows_thinking:
                return begun
        return begun + self._delta({"type": f"{kind}_delta", kind: text})

    def _begin(self, block: dict[str, Any]) -> str:
        ended = self._close()
        self._index += 1
        self._open = block["type"]
        if self._open == "thinking":
            block["signature"] = ""
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        return ended + named_event(start)

    def _delta(self, delta: dict[str, Any]) -> str:
        return named_event({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _close(self) -> str:
        if self._open is None:
            return ""
        signed = ""
        if self._open == "thinking":
            text = "".join(self._thinking)
            self._thinking.clear()
            signature = thinking_signature(text, is_shown=self._shows_thinking)
            signed = self._delta({"type": "signature_delta", "signature": signature})
        self._open = None
        return signed + named_event({"type": "content_block_stop", "index": self._index})
