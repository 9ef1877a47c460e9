"""A GPU of the host's memory, for tests of a network: launches only look at what they are given."""

import ctypes
from contextlib import nullcontext
from itertools import count

import numpy as np
import torch

from dsv4_trt.errors import PluginError
from dsv4_trt.graph import ValueKind
from dsv4_trt.kv_layout import CacheClass
from dsv4_trt.plugins.library import Call
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.runtime.cuda import driver
from dsv4_trt.runtime.cuda import network as network_module
from dsv4_trt.runtime.cuda.footprint import kept_values


def read(address, shape, strides=None):
    """The int32 array at an address."""
    strides = strides or [1]
    size = all(shape) + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if all(shape))
    flat = np.ctypeslib.as_array((ctypes.c_int32 * size).from_address(address))
    return np.lib.stride_tricks.as_strided(flat, shape, [4 * stride for stride in strides])


def dims(arg):
    """Shape and strides of a tensor."""
    return tuple(arg.shape[: arg.rank]), tuple(arg.stride[: arg.rank])


class Stream:
    """Knows whether anybody has yet to wait for what runs on it."""

    numbers = count(1)

    def __init__(self):
        self.cuda_stream = next(self.numbers)
        self.is_busy = False

    def wait_stream(self, other):
        other.is_busy = False

    def synchronize(self):
        self.is_busy = False


def install_driver(machine, current, monkeypatch):
    """Streams and captures of a GPU that is not there; what is captured is a list, `machine.captured`."""
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: current)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    fakes = {
        "new_stream": lambda device: Stream(),
        "new_event": lambda: 0,
        "free_with": lambda *_: None,
        "begin_capture": lambda stream: setattr(machine, "captured", []),
        "abandon_capture": lambda stream: setattr(machine, "captured", None),
        "end_capture": machine.end_capture,
        "launch_graph": machine.launch_graph,
        "destroy_graph": list.clear,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(driver, name, fake)


class Inputs:
    """`StepInputs` in plain memory."""

    def __init__(self, capacity, device):
        self.memory = np.zeros(capacity, np.int32)

    def address(self, offset):
        return self.memory.ctypes.data + 4 * offset

    def upload(self, arrays, offsets, stream):
        for name, array in arrays.items():
            self.memory[offsets[name] : offsets[name] + array.size] = array


class Machine:
    """Library, driver and profiler at once: a launch, now or from a graph, looks when it runs.

    Before that it is told the `network`, its `calls`, the `constants` by name and the step's `batch`.
    """

    def __init__(self, graph, monkeypatch):
        self.graph = graph
        self.captured = None
        self.fails_at = None  # a call of the library
        self.stamp = 0  # what a run writes to the logits
        self.current = Stream()
        monkeypatch.setattr(network_module, "StepInputs", Inputs)
        install_driver(self, self.current, monkeypatch)

    def call(self, op, attrs, tensors, start):
        return Call(self, op, [*OPS].index(op.name), attrs, tensors, start)

    def workspaces(self, launches):
        self.may_fail("workspaces")
        for launch, call in zip(launches, self.calls, strict=True):
            rows = next(iter(call.inputs.values())).shape[0]
            launch.workspace_bytes = 64 * rows if launch.stream else 0

    def scatter(self, target, places, values, count, stream):
        self.may_fail("scatter")
        ids = read(values, (count,))
        for place, number in zip(read(places, (count,)), ids, strict=True):
            ctypes.c_int32.from_address(target + 4 * int(place)).value = int(number)

    def profile(self, program, stream, spans):
        self.run(program.launches, None, None)

    def run(self, launches, streams, events):
        self.may_fail("run")
        seen = [
            (self.graph.values[name], args[param].data or 0, *dims(args[param]))
            for node, call in zip(self.graph.nodes, self.calls, strict=True)
            for names, args in ((node.inputs, call.inputs), (node.outputs, call.outputs))
            for param, name in names.items()
        ]
        spaces = [(launch.workspace or 0, launch.workspace_bytes) for launch in launches]
        if self.captured is None:
            self.look(seen, spaces)
        else:
            self.captured += [(seen, spaces)]

    def end_capture(self, stream):
        graph, self.captured = self.captured, None
        return graph

    def launch_graph(self, graph, stream):
        [(seen, spaces)] = graph
        self.look(seen, spaces)

    def may_fail(self, what):
        self.network.main.is_busy = True
        if self.fails_at == what:
            raise PluginError(what)

    def look(self, seen, spaces):
        """All that one step's launches see."""
        arena = self.network._arena._bytes
        start, end = arena.data_ptr(), arena.data_ptr() + arena.numel()
        for arg in seen:
            self.look_at(*arg, start, end)
        for address, nbytes in spaces:
            assert not nbytes or start <= address <= end - nbytes
        logits = self.graph.values[self.graph.outputs["logits"]]
        kept = self.network._buffers[logits.name].fill_(-1)
        kept[: self.batch.logits_rows.size * logits.shape[1]] = self.stamp

    def look_at(self, value, address, shape, strides, start, end):
        arrays, tables = self.batch.arrays(), self.batch.block_tables
        rows = {
            "num_tokens": self.batch.token_ids.size,
            "num_logits": self.batch.logits_rows.size,
            "num_decodes": self.batch.num_decodes,
        }
        first = value.shape[0]
        if first in rows:
            assert shape[0] == rows[first], value.name
        nbytes = int(np.prod(shape)) * value.dtype.itemsize
        if value.name in arrays:
            assert np.array_equal(read(address, shape), arrays[value.name]), value.name
        elif value.name.startswith("block_table."):
            table = tables[CacheClass(value.name.partition(".")[2])]
            assert np.array_equal(read(address, shape, strides), table), value.name
        elif value.name in self.constants:
            assert (address, shape) == self.constants[value.name], value.name
        elif value in kept_values(self.graph):
            kept = self.network._buffers[value.name]
            assert address == kept.data_ptr()
            assert nbytes <= kept.nbytes
        elif first in rows and value.kind is ValueKind.ACTIVATION:
            assert start <= address <= end - nbytes, value.name
