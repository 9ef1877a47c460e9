"""One execution context of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dsv4_trt.runtime.tensorrt.plan import Plan


class Bound(NamedTuple):
    """Where a tensor is and, where the step says it, its shape in TensorRT's order; () = by the plan."""

    address: int
    shape: tuple[int, ...] = ()


class Context:
    """Runs steps of one profile. TensorRT prepares anew after any change, so it hears of changes alone."""

    def __init__(self, plan: Plan, profile: int, streams: Sequence[int]) -> None:
        self._plan = plan
        self._memory: int | None = None
        self._bound: dict[str, Bound] = {}
        self._main, *side = streams
        self._context = plan.new_context()
        chosen = self._context.set_optimization_profile_async(profile, self._main)
        plan.check(chosen, f"choose profile {profile}")
        self._context.set_aux_streams(side)

    def bind(self, tensors: Mapping[str, Bound]) -> None:
        """Say where tensors are, and how large."""
        for name, bound in tensors.items():
            before = self._bound.get(name)
            if bound == before:
                continue
            self._bound.pop(name, None)  # nobody knows what TensorRT keeps of a call that fails
            if bound.shape and (before is None or bound.shape != before.shape):
                fits = self._context.set_input_shape(name, bound.shape)
                self._plan.check(fits, f"set input '{name}' to {list(bound.shape)}")
            found = self._context.set_tensor_address(name, bound.address)
            self._plan.check(found, f"set the address of '{name}'")
            self._bound[name] = bound

    def run(self, base: int) -> None:
        """Put a step on the main stream, with activations from `base` on."""
        if base != self._memory:
            self._context.set_device_memory(base, self._plan.arena_bytes)
            self._memory = base
        ran = self._context.execute_async_v3(self._main)
        self._plan.check(ran, "run a step")
