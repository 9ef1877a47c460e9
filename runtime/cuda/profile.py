"""Time by op against its floor: every launch between two events, on one stream, without a captured graph.

A launch alone takes longer than inside a captured graph: the sum over ops says where time goes, not how
long a step takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsv4_trt.dtypes import DType
from dsv4_trt.graph import Node
from dsv4_trt.plugins.costs import Ceilings, Cost, Span, call_cost
from dsv4_trt.runtime.cuda import driver
from dsv4_trt.runtime.cuda.program import Program


@dataclass(slots=True, kw_only=True)
class OpTime:
    """All calls of one op in the profiled steps."""

    op: str
    calls: int = 0
    us: float = 0.0
    floor_us: float = 0.0

    @property
    def share_of_floor(self) -> float:
        """1.0 is a call that takes no longer than it must."""
        return self.floor_us / self.us if self.us else 0.0


class Profiler:
    """Runs a program launch by launch and adds up what each op takes, by phase."""

    def __init__(self, program: Program, ceilings: Ceilings) -> None:
        self.program = program
        self.ceilings = ceilings
        self.steps: dict[str, int] = {}  # by phase
        self._rows: dict[str, dict[str, OpTime]] = {}
        self._nodes: dict[str, dict[str, float]] = {}
        self._events: list[int] = []

    def rows(self, phase: str) -> list[OpTime]:
        """Times of a phase, "decode" or "prefill", the longest first."""
        return sorted(self._rows.get(phase, {}).values(), key=lambda row: -row.us)

    def node_us(self, phase: str) -> dict[str, float]:
        """Microseconds of each node of a phase, summed over its steps."""
        return self._nodes.get(phase, {})

    def run(self, stream: int, spans: Sequence[Span]) -> None:
        """Run a step of these sequences once."""
        program, nodes = self.program, self.program.graph.nodes
        if len(self._events) <= len(nodes):
            more = range(len(nodes) + 1 - len(self._events))
            events = [driver.new_event(timing=True) for _ in more]
            driver.free_with(self, events)
            self._events += events
        driver.record_event(self._events[0], stream)
        for index, (call, launch) in enumerate(zip(program.calls, program.launches, strict=True)):
            program.library.launch(call, launch.workspace or 0, launch.workspace_bytes, stream)
            driver.record_event(self._events[index + 1], stream)
        driver.wait_for_event(self._events[len(nodes)])
        phase = "decode" if all(span.fed == 1 for span in spans) else "prefill"
        self.steps[phase] = self.steps.get(phase, 0) + 1
        found, by_node = self._rows.setdefault(phase, {}), self._nodes.setdefault(phase, {})
        for index, node in enumerate(nodes):
            row = found.setdefault(node.op, OpTime(op=node.op))
            us = driver.elapsed_us(self._events[index], self._events[index + 1])
            by_node[node.name] = by_node.get(node.name, 0.0) + us
            row.calls, row.us = row.calls + 1, row.us + us
            row.floor_us += node_cost(program, node, spans).floor_us(self.ceilings)


def node_cost(program: Program, node: Node, spans: Sequence[Span]) -> Cost:
    """The least that a node of a program must do."""

    def shapes(names: dict[str, str]) -> dict[str, tuple[DType, tuple[int, ...]]]:
        placed = {param: program.tensor(value) for param, value in names.items()}
        return {param: (tensor.dtype, tensor.shape) for param, tensor in placed.items()}

    return call_cost(node.op, shapes(node.inputs), shapes(node.outputs), node.attrs, spans)
