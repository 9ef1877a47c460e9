"""The sizes that batches are padded to. A ladder's last rung is the most that one step takes."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from dsv4_trt.errors import CapacityError, ConfigError


@dataclass(frozen=True, slots=True)
class Ladder:
    """Rising batch or token counts; every step is padded to one of them."""

    rungs: tuple[int, ...]

    def __post_init__(self) -> None:
        """Raise `ConfigError` unless `rungs` is a tuple of rising whole numbers of at least 1."""
        if not isinstance(self.rungs, tuple) or not self.rungs:
            raise ConfigError(
                f"a ladder's rungs are {self.rungs!r}; expected a tuple like (1, 2, 4)"
            )
        below = 0
        for rung in self.rungs:
            if type(rung) is not int or rung < 1:
                raise ConfigError(f"a ladder has the rung {rung!r}; expected whole numbers above 0")
            if rung <= below:
                raise ConfigError(
                    f"a ladder has {rung} behind {below}; expected rising numbers like "
                    f"{','.join(map(str, sorted({*self.rungs})))}"
                )
            below = rung

    @classmethod
    def up_to(cls, maximum: int) -> Ladder:
        """Two rungs to each doubling, 1 2 4 8 16 24 32 48 64 96 ..., and `maximum` as the last.

        Less than half of a rung is padding, less than a third of one above 16.
        """
        if type(maximum) is not int or maximum < 1:
            raise ConfigError(
                f"a ladder's maximum is {maximum!r}; expected a whole number of at least 1"
            )
        powers = [1 << n for n in range(maximum.bit_length())]
        between = [3 * power // 2 for power in powers if power >= 16]
        below = sorted(rung for rung in (*powers, *between) if rung < maximum)
        return cls((*below, maximum))

    @classmethod
    def parse(cls, text: str) -> Ladder:
        """Read rungs as people write them: "1,2,4". Raises `ConfigError`."""
        try:
            rungs = tuple(int(part) for part in text.split(","))
        except ValueError:
            raise ConfigError(f"a ladder is {text!r}; expected whole numbers like 1,2,4") from None
        return cls(rungs)

    @property
    def maximum(self) -> int:
        """The last rung."""
        return self.rungs[-1]

    def rung(self, count: int) -> int:
        """The smallest rung that holds `count`; `CapacityError` above the last."""
        at = bisect_left(self.rungs, count)
        if at == len(self.rungs):
            raise CapacityError(
                f"{count} do not fit the ladder, whose last rung is {self.maximum}; split the step, "
                "or build with a longer ladder"
            )
        return self.rungs[at]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLadders:
    """Sizes that an engine runs steps at."""

    seqs: Ladder  # numbers of decoding sequences, of sequences and of rows of logits
    tokens: Ladder
