"""What a `StreamParser` reads out of a model's output, in order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of the reasoning; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """A piece of the answer's text; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call begins; calls are counted from 0 through the whole output."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of a call's arguments; all pieces of a call joined are one JSON object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A tool call is complete; one without this was cut off or broken, and must not be run."""

    index: int


Event = Reasoning | Content | CallStart | CallArguments | CallEnd
