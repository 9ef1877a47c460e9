"""A graph's launches, ready for the streams: built once, then set to the sizes of one step after another.

Run-time sizes are first dimensions and no others, so another step is two assignments to arrays: the first
dimensions of all tensors, and their addresses. Activations lie where the largest step needs them, whatever
the size; behind them is the workspace, a piece for each stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from dsv4_trt.contract import BuildSpec
from dsv4_trt.graph import Graph, Node, Value
from dsv4_trt.plugins.library import Call, LaunchArg, Library, TensorArg, set_tensor
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.runtime.cuda.memory import ALIGNMENT, Arena
from dsv4_trt.runtime.cuda.placed import Placed
from dsv4_trt.runtime.cuda.schedule import NUM_STREAMS, Placement
from dsv4_trt.runtime.cuda.step_size import SIZE_NAMES, StepSize, step_sizes

_TENSOR = np.dtype(TensorArg)
_LAUNCH_FIELDS = {"workspace": np.uint64, "workspace_bytes": np.uint64, "stream": np.int32}
_LAUNCH = np.dtype(  # by hand: numpy has nothing for the pointers of the call inside
    {
        "names": [*_LAUNCH_FIELDS],
        "formats": [*_LAUNCH_FIELDS.values()],
        "offsets": [getattr(LaunchArg, name).offset for name in _LAUNCH_FIELDS],
        "itemsize": ctypes.sizeof(LaunchArg),
    }
)


class Program:
    """The launches of a graph whose steps are at most as large as `most`, but for rows of logits.

    See `StepProgram` for the order of its calls.
    """

    def __init__(
        self, graph: Graph, placements: Sequence[Placement], library: Library, most: StepSize
    ) -> None:
        self.graph = graph
        self.library = library
        self.placements = placements
        self.events = _number_events(placements)
        self._most = most._replace(num_logits=most.num_tokens)  # of all positions, where asked for
        self._size = self._most
        self._roots = _roots(graph)
        self._bound: dict[str, Placed] = {}
        self._numbers = {name: i for i, name in enumerate(dict.fromkeys(self._roots.values()))}
        self._addresses = np.zeros(len(self._numbers), np.uint64)  # of roots by number
        self._lay_out()
        self._make_calls()
        self.launches = (LaunchArg * len(graph.nodes))()
        for index, (call, placement) in enumerate(zip(self.calls, placements, strict=True)):
            self._fill_launch(index, call, placement)
        self._launch_view = np.frombuffer(memoryview(self.launches), _LAUNCH)
        self._workspace_starts = np.zeros(NUM_STREAMS, np.uint64)
        self._workspace_bytes = [0] * NUM_STREAMS  # the most that any size so far takes

    @property
    def num_events(self) -> int:
        """Nodes that another stream waits for."""
        return len(self.events)

    def bind(self, placed: Mapping[str, Placed]) -> None:
        """Say where values are that stay where they are; those of another name are nobody's."""
        for name in placed.keys() & self._args_of.keys():
            tensor = placed[name]
            self._bound[name] = tensor
            self._addresses[self._numbers[name]] = tensor.address
            for index in self._args_of[name]:
                set_tensor(self._args[index], 0, tensor.dtype, tensor.shape, tensor.strides)

    def resize(self, size: StepSize) -> int:
        """Set the step's size; returns the bytes of arena that it takes, with those of all sizes before.

        A step may be large for one stream and small for another, and so take more than others do.
        """
        assert size.num_tokens <= self._most.num_tokens, f"a step of {size}"
        self._size = size
        dims = np.array([*size.by_name().values()])
        self._arg_view["shape"][self._sized_args, 0] = dims[self._size_of_arg]
        self.library.workspaces(self.launches)
        nbytes, streams = self._launch_view["workspace_bytes"], self._launch_view["stream"]
        end = self._activation_bytes
        for stream, before in enumerate(self._workspace_bytes):
            self._workspace_starts[stream] = end
            most = int(nbytes.max(where=streams == stream, initial=before))
            self._workspace_bytes[stream] = most
            end += -(-most // ALIGNMENT) * ALIGNMENT
        return end

    def most_bytes(self, build: BuildSpec) -> int:
        """Bytes of arena that suffice for steps of every size; leaves the program at one of them."""
        return max(self.resize(size) for size in step_sizes(build))

    def place(self, base: int, addresses: Mapping[str, int]) -> None:
        """Say where the arena is, and by name the step's inputs and outputs."""
        self._addresses[self._in_arena] = self._offsets + np.uint64(base)
        for name, address in addresses.items():
            self._addresses[self._numbers[name]] = address
        self._arg_view["data"][self._present_args] = self._addresses[self._root_of_arg]
        launches = self._launch_view
        starts = self._workspace_starts[launches["stream"]] + np.uint64(base)
        launches["workspace"] = np.where(launches["workspace_bytes"] > 0, starts, 0)

    def run(
        self, streams: ctypes.Array[ctypes.c_void_p], events: ctypes.Array[ctypes.c_void_p]
    ) -> None:
        """Put all launches on the streams; events are those of `events` by number."""
        self.library.run(self.launches, streams, events)

    def tensor(self, name: str) -> Placed:
        """Address, dtype and shape of a value in this step."""
        root = self._roots[name]
        if root in self._bound:
            return self._bound[root]
        value = self.graph.values[root]
        address = int(self._addresses[self._numbers[root]])
        return Placed.dense(address, value.dtype, self._size.shape(value))

    def _lay_out(self) -> None:
        """Offsets of the activations in the arena."""
        arena, offsets = Arena(), {}
        outputs = set(self.graph.outputs.values())
        for node, placement in zip(self.graph.nodes, self.placements, strict=True):
            arena.merge(placement.epoch)
            for param, name in node.outputs.items():
                if param not in node.aliases and name not in outputs:
                    nbytes = self._most_bytes(self.graph.values[name])
                    offsets[name] = arena.take(nbytes, placement.stream, placement.epoch)
            for value, stream in placement.frees:
                if value in offsets:
                    arena.give_back(offsets[value], stream, placement.epoch)
        self._activation_bytes = arena.size
        self._in_arena = np.array([self._numbers[name] for name in offsets], np.intp)
        self._offsets = np.array([*offsets.values()], np.uint64)

    def _most_bytes(self, value: Value) -> int:
        return prod(self._most.shape(value)) * value.dtype.itemsize

    def _make_calls(self) -> None:
        """All calls, their tensors in one array; of each its root, and the size that it begins with."""
        ops = [OPS[node.op] for node in self.graph.nodes]
        count = sum(len(op.inputs) + len(op.outputs) for op in ops)
        self._args = (TensorArg * count)()
        self._arg_view = np.frombuffer(memoryview(self._args), _TENSOR)
        self._args_of: dict[str, list[int]] = {}
        self.calls: list[Call] = []
        start = 0
        for node, op in zip(self.graph.nodes, ops, strict=True):
            self.calls.append(self.library.call(op, node.attrs, self._args, start))
            start = self._note_args(node, start)
        pairs = [(i, self._numbers[root]) for root, args in self._args_of.items() for i in args]
        self._present_args, self._root_of_arg = np.array(pairs, np.intp).T
        firsts = {root: self.graph.values[root].shape[0] for root in self._args_of}
        sized = [
            (index, SIZE_NAMES.index(first))
            for root, first in firsts.items()
            if first in SIZE_NAMES
            for index in self._args_of[root]
        ]
        self._sized_args, self._size_of_arg = np.array(sized, np.intp).T

    def _note_args(self, node: Node, start: int) -> int:
        """Fill in a node's tensors as far as they are known; returns where the next node's begin."""
        op = OPS[node.op]
        for params, names in ((op.inputs, node.inputs), (op.outputs, node.outputs)):
            for number, param in enumerate(params, start):
                if param.name not in names:
                    continue  # rank 0: the call does not have it
                root = self._roots[names[param.name]]
                value = self.graph.values[root]
                dense = Placed.dense(0, value.dtype, self._most.shape(value))
                set_tensor(self._args[number], 0, dense.dtype, dense.shape, dense.strides)
                self._args_of.setdefault(root, []).append(number)
            start += len(params)
        return start

    def _fill_launch(self, index: int, call: Call, placement: Placement) -> None:
        launch = self.launches[index]
        launch.call, launch.stream = call.arg, placement.stream
        launch.record = self.events.get(index, -1)
        launch.num_waits = len(placement.waits)
        launch.waits[: len(placement.waits)] = [self.events[i] for i in placement.waits]


def _roots(graph: Graph) -> dict[str, str]:
    """For each value the one whose memory it is: aliased outputs are their inputs."""
    roots = {name: name for name, value in graph.values.items()}
    for node in graph.nodes:
        for param, source in node.aliases.items():
            roots[node.outputs[param]] = roots[node.inputs[source]]
    return roots


def _number_events(placements: Sequence[Placement]) -> dict[int, int]:
    """An event's number for each node that another stream waits for."""
    recorded = [i for i, placement in enumerate(placements) if placement.recorded]
    return {node: number for number, node in enumerate(recorded)}
