"""Past responses, in memory: what `previous_response_id`, item references and retrieval read.

Bounded in number and in bytes; the one that was not used for longest goes first, and all with the process.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

MAX_RESPONSES = 4096
MAX_BYTES = 256 << 20  # of memory, about; each response counts its whole conversation
PART_BYTES = 1024  # what a message or item takes besides its texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A response, and the conversation that it ends, in V4's messages without instructions."""

    response: dict[str, Any]
    messages: list[dict[str, Any]]

    @property
    def num_bytes(self) -> int:
        """Its size in memory, about: many small messages take more than their texts."""
        parts = [*self.messages, *self.response["output"]]
        texts = sum(len(str(value)) for part in parts for value in part.values())
        return texts + PART_BYTES * len(parts)


class ResponseStore:
    """Responses by id, and their output items by theirs."""

    def __init__(self, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        self._max_responses, self._max_bytes = max_responses, max_bytes
        self._entries: OrderedDict[str, tuple[Stored, int]] = OrderedDict()
        self._items: dict[str, dict[str, Any]] = {}
        self._num_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, stored: Stored) -> None:
        """Keep a response; one that is larger than the whole store is not kept."""
        size = stored.num_bytes
        if size > self._max_bytes:
            return
        self._entries[stored.response["id"]] = stored, size
        self._items |= {item["id"]: item for item in stored.response["output"]}
        self._num_bytes += size
        while len(self._entries) > self._max_responses or self._num_bytes > self._max_bytes:
            self.drop(next(iter(self._entries)))

    def get(self, response_id: str) -> Stored | None:
        """A response that is kept, or None."""
        if response_id not in self._entries:
            return None
        self._entries.move_to_end(response_id)
        return self._entries[response_id][0]

    def item(self, item_id: str) -> dict[str, Any] | None:
        """An output item of a response that is kept, or None."""
        return self._items.get(item_id)

    def drop(self, response_id: str) -> bool:
        """Forget a response; whether it was kept."""
        entry = self._entries.pop(response_id, None)
        if entry is None:
            return False
        stored, size = entry
        self._num_bytes -= size
        for item in stored.response["output"]:
            del self._items[item["id"]]
        return True
