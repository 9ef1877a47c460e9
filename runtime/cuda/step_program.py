"""What a network runs: a graph's kernel launches, or its TensorRT plan."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Protocol

from dsv4_trt.contract import BuildSpec
from dsv4_trt.runtime.cuda.placed import Placed
from dsv4_trt.runtime.cuda.step_size import StepSize


class StepProgram(Protocol):
    """One graph, set to the size of one step after another.

    Before it runs, `bind` says where weights, pools and tables are, `resize` how large the step is, and
    `place` where activations, inputs and outputs are.
    """

    @property
    def num_events(self) -> int:
        """How many events `run` uses."""
        ...

    def bind(self, placed: Mapping[str, Placed]) -> None:
        """Say where values are that stay where they are; those of another name are nobody's."""
        ...

    def most_bytes(self, build: BuildSpec) -> int:
        """Bytes of arena that suffice for steps of every size; leaves the program at any of them."""
        ...

    def resize(self, size: StepSize) -> int:
        """Set the step's size; returns the bytes of arena that it takes."""
        ...

    def place(self, base: int, addresses: Mapping[str, int]) -> None:
        """Say where the arena is, and by name the step's inputs and outputs."""
        ...

    def run(
        self, streams: ctypes.Array[ctypes.c_void_p], events: ctypes.Array[ctypes.c_void_p]
    ) -> None:
        """Put the step on the streams: the first is the main one, behind which all of it ends."""
        ...
