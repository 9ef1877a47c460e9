"""Items as V4's messages, so that what the model said encodes as it was said, its reasoning included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.chat.markers import PARAGRAPH
from dsv4_trt.runtime.server.client_names import PATH
from dsv4_trt.runtime.server.responses.input_items import (
    CallItem,
    Item,
    MessageItem,
    OutputItem,
    Parts,
    ReasoningItem,
    ReferenceItem,
)
from dsv4_trt.runtime.server.sealed_text import unseal


def v4_messages(
    items: Sequence[Item], find: Callable[[str], Item | None], past: Sequence[dict[str, Any]] = ()
) -> list[dict[str, Any]]:
    """V4's messages of `past` and items: what the model said in a row is one assistant message.

    System and developer messages before everything else become the system message; later ones part of
    the user's turn, as V4's format has no other place for them. `find` gives a stored item by its id.
    Raises `RequestError` for a reference to nothing and for the result of a call that nobody made.
    """
    history = History(past)
    for number, item in enumerate(items):
        path = f"input[{number}]"
        history.add(_resolved(item, find, path), path)
    return history.messages


class History:
    """Messages so far. Those it was given stay as they are; what grows is joined once, at its end."""

    def __init__(self, past: Sequence[dict[str, Any]]) -> None:
        self._messages = list(past)
        self._system: list[str] = []  # texts of the system message, while nothing else has come
        self._answer: dict[str, list[Any]] = {}  # pieces of the assistant's turn that is open
        self._path = ""  # of the message that is open
        self._called = {call["id"] for message in past for call in message.get("tool_calls", ())}

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All of them; what was open has ended."""
        self._close()
        return self._messages

    def add(self, item: Item, path: str) -> None:
        """Add one item."""
        match item:
            case MessageItem(role="assistant"):
                text = "".join(part.text for part in item.content)
                self._assistant(path, content=text)
            case MessageItem():
                self._add_text(item, path)
            case ReasoningItem():
                self._assistant(path, reasoning_content=reasoning_text(item))
            case CallItem():
                self._add_call(item, path)
            case OutputItem():
                self._add_output(item, path)
            case ReferenceItem():
                raise AssertionError(f"{path} was not resolved")

    def _add_text(self, item: MessageItem, path: str) -> None:
        text = joined(item.content)
        if item.role == "user" or self._messages or self._answer:
            self.messages.append({"role": "user", "content": text, PATH: path})
        else:
            self._path = self._path if self._system else path
            self._system.append(text)

    def _assistant(self, path: str, **more: Any) -> None:
        """Add to the assistant's turn, which begins here unless the last message is one."""
        if not self._answer:
            messages = self.messages
            names = ("content", "reasoning_content", "tool_calls")
            self._answer, self._path = {name: [] for name in names}, path
            if messages and messages[-1]["role"] == "assistant":
                turn = messages.pop()
                self._answer = {name: [turn[name]] for name in names}
                self._path = turn.get(PATH, path)
        for name, value in more.items():
            self._answer[name].append(value)

    def _close(self) -> None:
        """End the message that is open."""
        if self._system:
            text = PARAGRAPH.join(self._system)
            self._messages.append({"role": "system", "content": text, PATH: self._path})
            self._system = []
        if self._answer:
            calls = [call for some in self._answer["tool_calls"] for call in some]
            turn = {
                "role": "assistant",
                "content": "".join(self._answer["content"]),
                "reasoning_content": "".join(self._answer["reasoning_content"]),
                "tool_calls": calls,
            }
            self._messages.append(turn | {PATH: self._path})
            self._answer = {}

    def _add_call(self, item: CallItem, path: str) -> None:
        if item.call_id in self._called:
            raise RequestError(
                f"{path}.call_id is {item.call_id!r}, which another call has; expected an id for each",
                parameter=f"{path}.call_id",
            )
        self._called.add(item.call_id)
        function = {"name": item.name, "arguments": item.arguments}
        call = {"id": item.call_id, "type": "function", "function": function}
        self._assistant(path, tool_calls=[call])

    def _add_output(self, item: OutputItem, path: str) -> None:
        if item.call_id not in self._called:
            raise RequestError(
                f"{path}.call_id is {item.call_id!r}; expected the call_id of a function_call before it",
                parameter=f"{path}.call_id",
            )
        result = {"role": "tool", "tool_call_id": item.call_id, "content": joined(item.output)}
        self.messages.append(result | {PATH: path})


def reasoning_text(item: ReasoningItem) -> str:
    """The reasoning in an item: its text, else what we sealed, else its summary."""
    if item.content:
        return "".join(part.text for part in item.content)
    sealed = unseal(item.encrypted_content or "")
    return "".join(part.text for part in item.summary) if sealed is None else sealed


def joined(parts: Parts) -> str:
    """The text of a message's or an output's parts."""
    return PARAGRAPH.join(part.text for part in parts)


def _resolved(item: Item, find: Callable[[str], Item | None], path: str) -> Item:
    if not isinstance(item, ReferenceItem):
        return item
    found = find(item.id)
    if found is None:
        raise RequestError(
            f"{path} refers to the item {item.id!r}, which is not stored here (any more); send the item",
            parameter=path,
        )
    return found
