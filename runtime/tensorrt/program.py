"""A plan as the program of a network."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from dsv4_trt.contract import TABLE_ORDER, BuildSpec, is_block_table
from dsv4_trt.graph import Graph
from dsv4_trt.runtime.cuda.placed import Placed
from dsv4_trt.runtime.cuda.step_size import StepSize
from dsv4_trt.runtime.tensorrt.context import Bound, Context
from dsv4_trt.runtime.tensorrt.plan import Plan


class PlanProgram:
    """Steps of a plan; see `StepProgram`.

    Each size of decode step has a context, whose shapes and addresses stay, so that it can be captured; all
    other steps of a profile share one. Contexts appear when they are first run.
    """

    num_events = 0  # TensorRT has its own

    def __init__(self, plan: Plan, graph: Graph) -> None:
        self._plan = plan
        self._graph = graph
        self._fixed: dict[str, Bound] = {}
        self._contexts: dict[StepSize | int, Context] = {}
        self._size = StepSize(1, 1, 1, 1)
        self._profile = 0
        self._base = 0
        self._moving: dict[str, Bound] = {}

    def bind(self, placed: Mapping[str, Placed]) -> None:
        """Say where weights, pools and tables are; TensorRT drops inputs that nothing needs."""
        names = placed.keys() & self._plan.inputs.keys()
        found = {name: self._fixed_input(name, placed[name]) for name in sorted(names)}
        self._fixed |= found
        for context in self._contexts.values():
            context.bind(found)

    def most_bytes(self, build: BuildSpec) -> int:
        """Bytes that suffice for steps of every size, of the build and of the plan."""
        return self._plan.arena_bytes

    def resize(self, size: StepSize) -> int:
        """Choose the profile of a step; returns the bytes of arena, which are the same for all sizes.

        Raises `CapacityError` for a size that the plan was not built for.
        """
        self._profile = self._plan.profile_of(size)
        self._size = size
        return self._plan.arena_bytes

    def place(self, base: int, addresses: Mapping[str, int]) -> None:
        """Say where the arena is, and by name the step's inputs and outputs."""
        self._base = base
        names = addresses.keys() & self._plan.names
        self._moving = {name: self._moving_tensor(name, addresses[name]) for name in sorted(names)}

    def run(
        self, streams: ctypes.Array[ctypes.c_void_p], events: ctypes.Array[ctypes.c_void_p]
    ) -> None:
        """Put the step on the first stream; TensorRT uses the others beside it and joins them."""
        key = self._size if self._size.is_decode else self._profile
        context = self._contexts.get(key)
        if context is None:
            context = Context(self._plan, self._profile, [stream or 0 for stream in streams])
            context.bind(self._fixed)
            self._contexts[key] = context
        context.bind(self._moving)
        context.run(self._base)

    def _fixed_input(self, name: str, placed: Placed) -> Bound:
        tensor = self._plan.inputs[name]
        shape, strides = placed.shape, placed.strides
        if is_block_table(name):
            shape, strides = (tuple(x[i] for i in TABLE_ORDER) for x in (shape, strides))
        dense = Placed.dense(placed.address, placed.dtype, shape)
        assert strides == dense.strides, f"input '{name}' of strides {strides} is not dense"
        self._plan.check_sizes(tensor, shape)
        return Bound(placed.address, shape if tensor.is_sized else ())

    def _moving_tensor(self, name: str, address: int) -> Bound:
        if name not in self._plan.inputs:
            return Bound(address)
        return Bound(address, self._size.shape(self._graph.values[name]))
