"""An answer as output items, and the typed events that build each of them.

```
output_item.added (part.added text.delta* text.done part.done)? output_item.done        reasoning, message
output_item.added function_call_arguments.delta* function_call_arguments.done output_item.done
```
One item is open at a time. Events come without their sequence numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Literal, TypeAlias

from dsv4_trt.runtime.chat.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Event,
    Reasoning,
)
from dsv4_trt.runtime.server.sealed_text import seal

Json: TypeAlias = dict[str, Any]
Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextShape:
    """How an item that holds one text is written."""

    item: Json  # its fields at the start
    id_prefix: str
    part: Json  # the part that holds the text, without it
    parts: str  # field of the item with its parts
    index: str  # field of an event that says which part
    part_event: str
    text_event: str
    more: Json  # further fields of text events


REASONING = TextShape(
    item={"type": "reasoning", "summary": [], "content": []},
    id_prefix="rs_",
    part={"type": "reasoning_text"},
    parts="content",
    index="content_index",
    part_event="response.content_part",
    text_event="response.reasoning_text",
    more={},
)
SUMMARY = TextShape(
    item={"type": "reasoning", "summary": []},
    id_prefix="rs_",
    part={"type": "summary_text"},
    parts="summary",
    index="summary_index",
    part_event="response.reasoning_summary_part",
    text_event="response.reasoning_summary_text",
    more={},
)
MESSAGE = TextShape(
    item={"type": "message", "role": "assistant", "content": []},
    id_prefix="msg_",
    part={"type": "output_text", "annotations": [], "logprobs": []},
    parts="content",
    index="content_index",
    part_event="response.content_part",
    text_event="response.output_text",
    more={"logprobs": []},
)
CALL_EVENT = "response.function_call_arguments"


class OutputItems:
    """The items of one answer; `items` are those that are done."""

    def __init__(self, *, seals_reasoning: bool, shows_summary: bool) -> None:
        self.items: list[Json] = []
        self._seals_reasoning = seals_reasoning
        self._reasoning = SUMMARY if shows_summary else REASONING
        self._shape: TextShape | None = None  # of the open item, if it holds a text
        self._item: Json | None = None  # the open one, as it began
        self._texts: list[str] = []  # of the open item

    def take(self, events: Iterable[Event]) -> list[Json]:
        """What the parser's events of a step add."""
        return [made for event in events for made in self._one(event)]

    def end(self, *, is_complete: bool) -> list[Json]:
        """Close the open item; a call that is open was cut off."""
        status: Status = "completed" if is_complete and self._shape else "incomplete"
        return self._close(status)

    def _one(self, event: Event) -> list[Json]:
        match event:
            case Reasoning(text=text):
                return self._text(self._reasoning, text)
            case Content(text=text):
                return self._text(MESSAGE, text)
            case CallStart(name=name):
                return self._begin_call(name)
            case CallArguments(text=text):
                self._texts.append(text)
                return [self._event(f"{CALL_EVENT}.delta", delta=text)]
            case CallEnd():
                return self._close("completed")
        raise AssertionError(f"{event!r} is no event of the parser")

    def _text(self, shape: TextShape, text: str) -> list[Json]:
        begun = [] if self._shape is shape else self._begin_text(shape)
        self._texts.append(text)
        delta = self._event(
            f"{shape.text_event}.delta", **{shape.index: 0}, delta=text, **shape.more
        )
        return [*begun, delta]

    def _begin_text(self, shape: TextShape) -> list[Json]:
        ended = self._next()
        self._shape = shape
        part = shape.part | {"text": ""}
        return [
            *ended,
            self._begin(shape.item | {"id": shape.id_prefix + token_hex(16)}),
            self._event(f"{shape.part_event}.added", **{shape.index: 0}, part=part),
        ]

    def _begin_call(self, name: str) -> list[Json]:
        ended = self._next()
        item = {
            "type": "function_call",
            "id": f"fc_{token_hex(16)}",
            "call_id": f"call_{token_hex(12)}",
            "name": name,
            "arguments": "",
        }
        return [*ended, self._begin(item)]

    def _begin(self, item: Json) -> Json:
        self._item = item | {"status": "in_progress"}
        return {
            "type": "response.output_item.added",
            "output_index": len(self.items),
            "item": self._item,
        }

    def _event(self, kind: str, **fields: Any) -> Json:
        assert self._item is not None
        place = {"item_id": self._item["id"], "output_index": len(self.items)}
        return {"type": kind, **place, **fields}

    def _next(self) -> list[Json]:
        """Close the open item as another one begins: a text is whole then, a call is not."""
        return self._close("completed" if self._shape else "incomplete")

    def _close(self, status: Status) -> list[Json]:
        if self._item is None:
            return []
        text, shape = "".join(self._texts), self._shape
        if shape is None:
            ended = [self._event(f"{CALL_EVENT}.done", name=self._item["name"], arguments=text)]
            item = self._item | {"arguments": text, "status": status}
        else:
            part = shape.part | {"text": text}
            place = {shape.index: 0}
            ended = [
                self._event(f"{shape.text_event}.done", **place, text=text, **shape.more),
                self._event(f"{shape.part_event}.done", **place, part=part),
            ]
            item = self._item | {shape.parts: [part], "status": status} | self._sealed(text)
        done = {
            "type": "response.output_item.done",
            "output_index": len(self.items),
            "item": item,
        }
        self.items.append(item)
        self._item, self._shape = None, None
        self._texts.clear()
        return [*ended, done]

    def _sealed(self, text: str) -> Json:
        if self._shape is self._reasoning and self._seals_reasoning:
            return {"encrypted_content": seal(text)}
        return {}
