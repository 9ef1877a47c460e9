"""Which tails a sequence leaves behind: the ends of logical blocks whose window pages stay.

A prefix hit needs the window as it was at that very boundary (SWA keys, CSA state), which costs more
than the block itself. Policies:

    newest   the last boundary of the prompt and the last one of the output
    every    each boundary
    k        each k-th boundary, and the newest
"""

from __future__ import annotations

from dataclasses import dataclass

from dsv4_trt.errors import ConfigError
from dsv4_trt.kv_layout import LOGICAL_BLOCK


@dataclass(frozen=True, slots=True)
class Retention:
    """Keep each boundary that is a multiple of `every` blocks (0 = none of them), and the newest."""

    every: int = 0

    @staticmethod
    def parse(value: str | int) -> Retention:
        """`"newest"`, `"every"` or a number of blocks; raises `ConfigError`."""
        if isinstance(value, str) and value in ("newest", "every"):
            return Retention(int(value == "every"))
        if type(value) is int and value >= 1:
            return Retention(value)
        raise ConfigError(
            f"tail_retention is {value!r}; expected 'newest', 'every' or a number of blocks of at "
            "least 1"
        )

    def tails_per_step(self, max_chunk: int) -> int:
        """Most boundaries that one sequence's chunk of `max_chunk` tokens leaves behind."""
        if not self.every:
            return 1
        return -(-max_chunk // (self.every * LOGICAL_BLOCK)) + 1

    def boundaries(self, start: int, end: int) -> list[int]:
        """Boundaries in (start, end] that a chunk leaves behind, in ascending order."""
        newest = end // LOGICAL_BLOCK * LOGICAL_BLOCK
        if newest <= start:
            return []
        if not self.every:
            return [newest]
        stride = self.every * LOGICAL_BLOCK
        found = list(range(start // stride * stride + stride, newest, stride))
        return [*found, newest]

    def is_lasting(self, boundary: int) -> bool:
        """Whether a boundary stays when the sequence reaches a newer one."""
        return self.every > 0 and boundary % (self.every * LOGICAL_BLOCK) == 0


def tails_per_step(retention: Retention | None, max_chunk: int) -> int:
    """Boundaries that a chunk of `max_chunk` tokens leaves behind; none without a prefix cache."""
    return 0 if retention is None else retention.tails_per_step(max_chunk)
