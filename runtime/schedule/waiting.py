"""The queue of sequences that hold no pages: by priority, then by arrival, also when they come back."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from dsv4_trt.runtime.schedule.sequence import Sequence


class WaitingQueue:
    """A heap by order of service; a sequence that leaves from the middle is skipped when it comes up."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[float, int, int], Sequence]] = []
        self._inside: set[Sequence] = set()

    def __len__(self) -> int:
        return len(self._inside)

    def __iter__(self) -> Iterator[Sequence]:
        """All that wait, in no order."""
        return iter(self._inside)

    def push(self, sequence: Sequence) -> None:
        """Take a sequence in; no two have the same order."""
        heappush(self._heap, (sequence.order, sequence))
        self._inside.add(sequence)

    def peek(self) -> Sequence | None:
        """The sequence that is next."""
        while self._heap and self._heap[0][1] not in self._inside:
            heappop(self._heap)
        return self._heap[0][1] if self._heap else None

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands; only the first one may come back."""
        self._inside.remove(sequence)
        if self._heap[0][1] is sequence:
            heappop(self._heap)
        elif len(self._heap) > 2 * len(self._inside) + 64:  # most have left from the middle
            self._heap = [(waiting.order, waiting) for waiting in self._inside]
            heapify(self._heap)
