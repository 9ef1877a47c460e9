"""A graph at fixed sizes: every launch with its shapes and addresses, ready for the streams."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dsv4_trt.dtypes import DType
from dsv4_trt.graph import Graph, Node, Value
from dsv4_trt.plugins.library import Call, LaunchArg, Library, TensorArg, set_tensor
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.runtime.cuda.memory import Arena
from dsv4_trt.runtime.cuda.schedule import Placement

Sizes = Mapping[str, int]  # run-time sizes of the graph by name


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor in device memory; strides are in elements."""

    address: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def dense(address: int, dtype: DType, shape: tuple[int, ...]) -> Placed:
        """A tensor without gaps."""
        strides = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
        return Placed(address, dtype, shape, strides)


class Program:
    """The launches of a graph at some sizes, in an arena of `arena_bytes` that is given afterwards."""

    def __init__(
        self,
        graph: Graph,
        placements: Sequence[Placement],
        library: Library,
        sizes: Sizes,
        bound: Mapping[str, Placed],
    ) -> None:
        self.graph = graph
        self.library = library
        self.placements = placements
        self.events = _number_events(placements)
        self.calls: list[Call] = []
        self._tensors: list[tuple[TensorArg, str]] = []  # whose address is in the arena
        self._offsets: dict[str, int] = {}
        self._workspaces: list[tuple[int, int]] = []  # offset, bytes
        self.launches = (LaunchArg * len(graph.nodes))()
        self._placed = dict(bound)
        arena = Arena()
        for node, placement in zip(graph.nodes, placements, strict=True):
            self._add(node, placement, sizes, arena)
        self.arena_bytes = arena.size

    def place(self, base: int) -> None:
        """Put the program into an arena at a device address."""
        for tensor, value in self._tensors:
            tensor.data = base + self._offsets[value]
        for launch, (offset, nbytes) in zip(self.launches, self._workspaces, strict=True):
            launch.workspace = base + offset if nbytes else None

    def run(
        self, streams: ctypes.Array[ctypes.c_void_p], events: ctypes.Array[ctypes.c_void_p]
    ) -> None:
        """Put all launches on the streams; events are those of `events` by number."""
        self.library.run(self.launches, streams, events)

    def tensor(self, value: str) -> Placed:
        """Dtype and shape of a value at this program's sizes."""
        return self._placed[value]

    def _add(self, node: Node, placement: Placement, sizes: Sizes, arena: Arena) -> None:
        arena.merge(placement.epoch)
        call = self.library.call(OPS[node.op], node.attrs)
        for param, name in node.outputs.items():
            if param in node.aliases:
                self._placed[name] = self._placed[node.inputs[node.aliases[param]]]
            elif name not in self._placed:
                self._take(self.graph.values[name], placement, sizes, arena)
        for args, names in ((call.inputs, node.inputs), (call.outputs, node.outputs)):
            for param, name in names.items():
                self._set(args[param], name)
        nbytes = self.library.workspace(call)
        offset = arena.take(nbytes, placement.stream, placement.epoch) if nbytes else 0
        if nbytes:
            arena.give_back(offset, placement.stream, placement.epoch)
        for value, stream in placement.frees:
            if value in self._offsets:
                arena.give_back(self._offsets[value], stream, placement.epoch)
        self._workspaces.append((offset, nbytes))
        self._fill_launch(len(self.calls), call, placement, nbytes)
        self.calls.append(call)

    def _take(self, value: Value, placement: Placement, sizes: Sizes, arena: Arena) -> None:
        shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in value.shape)
        self._placed[value.name] = Placed.dense(0, value.dtype, shape)
        nbytes = prod(shape) * value.dtype.itemsize
        self._offsets[value.name] = arena.take(nbytes, placement.stream, placement.epoch)

    def _set(self, arg: TensorArg, name: str) -> None:
        placed = self._placed[name]
        set_tensor(arg, placed.address, placed.dtype, placed.shape, placed.strides)
        if name in self._offsets:
            self._tensors.append((arg, name))

    def _fill_launch(self, index: int, call: Call, placement: Placement, nbytes: int) -> None:
        launch = self.launches[index]
        launch.call, launch.workspace_bytes, launch.stream = call.arg, nbytes, placement.stream
        launch.record = self.events.get(index, -1)
        launch.num_waits = len(placement.waits)
        launch.waits[: len(placement.waits)] = [self.events[i] for i in placement.waits]


def _number_events(placements: Sequence[Placement]) -> dict[int, int]:
    """An event's number for each node that another stream waits for."""
    recorded = [i for i, placement in enumerate(placements) if placement.recorded]
    return {node: number for number, node in enumerate(recorded)}
