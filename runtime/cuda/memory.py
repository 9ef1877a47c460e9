"""Places for buffers in one arena, reused as soon as the order of the streams allows."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

ALIGNMENT = 1024  # bytes: what swizzled copies into shared memory ask for


@dataclass(slots=True)
class _Block:
    """Free bytes that, in `epoch`, only `stream` may use; -1 and -1 = anybody may."""

    start: int
    size: int
    stream: int
    epoch: int


class Arena:
    """Hands out offsets; the program's order of calls is the order of use."""

    def __init__(self) -> None:
        self.size = 0
        self._free: list[_Block] = []  # by start
        self._sizes: dict[int, int] = {}

    def take(self, nbytes: int, stream: int, epoch: int) -> int:
        """The offset of `nbytes` for a node on `stream` in `epoch`."""
        size = max(-(-nbytes // ALIGNMENT) * ALIGNMENT, ALIGNMENT)
        fits = [b for b in self._free if b.size >= size and _usable(b, stream, epoch)]
        if fits:
            block = min(fits, key=lambda b: b.size)
            offset = block.start
            block.start, block.size = block.start + size, block.size - size
            if not block.size:
                self._free.remove(block)
        else:
            offset, self.size = self.size, self.size + size
        self._sizes[offset] = size
        return offset

    def give_back(self, offset: int, stream: int, epoch: int) -> None:
        """Nobody uses `offset` any more; in `epoch` only `stream` did (-1: several, or it is unknown)."""
        insort(
            self._free,
            _Block(offset, self._sizes.pop(offset), stream, epoch),
            key=lambda b: b.start,
        )

    def merge(self, epoch: int) -> None:
        """At the begin of an epoch: what earlier ones gave back is anybody's, in one piece."""
        merged: list[_Block] = []
        for block in self._free:
            if block.epoch < epoch:
                block.stream = block.epoch = -1
            last = merged[-1] if merged else None
            joins = last is not None and last.epoch == block.epoch == -1
            if last is not None and joins and last.start + last.size == block.start:
                last.size += block.size
            else:
                merged.append(block)
        self._free = merged


def _usable(block: _Block, stream: int, epoch: int) -> bool:
    return block.epoch < epoch or block.stream == stream
