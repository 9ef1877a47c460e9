"""One graph on the GPU: programs by step size, captured graphs of decode steps, and what they read."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch

from dsv4_trt.contract import BuildSpec
from dsv4_trt.dtypes import DType
from dsv4_trt.graph import Graph, ValueKind
from dsv4_trt.plugins.costs import Span
from dsv4_trt.plugins.cuda_ops import TORCH_DTYPES
from dsv4_trt.plugins.library import Library
from dsv4_trt.runtime.batch import StepBatch, StepOutput
from dsv4_trt.runtime.cuda import driver
from dsv4_trt.runtime.cuda.inputs import StepInputs, pack
from dsv4_trt.runtime.cuda.profile import Profiler
from dsv4_trt.runtime.cuda.program import Placed, Program
from dsv4_trt.runtime.cuda.schedule import NUM_STREAMS, schedule
from dsv4_trt.runtime.cuda.tables import MAX_CHANGES, DeviceTables

_MAX_PROGRAMS = 64  # step sizes whose launches are kept


class StepSize(NamedTuple):
    """What a program depends on."""

    num_tokens: int
    num_seqs: int
    num_decodes: int
    num_logits: int

    @property
    def is_decode(self) -> bool:
        """Whether every row is a decoding sequence whose logits are wanted."""
        return self.num_tokens == self.num_seqs == self.num_decodes == self.num_logits


class SharedArena:
    """Activation memory that all networks of an engine use in turn."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._bytes = torch.empty(0, dtype=torch.int8, device=device)
        self.version = 0  # changes when the memory moves

    def reserve(self, nbytes: int) -> int:
        """The address of at least `nbytes`."""
        if nbytes > self._bytes.numel():
            self.version += 1  # also if there is no room for more: the old memory goes first
            self._bytes = torch.empty(0, dtype=torch.int8, device=self._device)
            self._bytes = torch.empty(nbytes, dtype=torch.int8, device=self._device)
        return int(self._bytes.data_ptr())


class _Loaded(NamedTuple):
    program: Program
    offsets: dict[str, int]  # of the step's arrays
    changes: int  # offset of changed places; behind them their ids


class Network:
    """Runs one graph; steps of one network come one after another."""

    def __init__(
        self,
        graph: Graph,
        library: Library,
        constants: Mapping[str, Placed],
        build: BuildSpec,
        arena: SharedArena,
        device: torch.device,
        *,
        use_cuda_graphs: bool = True,
        side_streams: bool = True,
    ) -> None:
        self.graph = graph
        self.placements = schedule(graph, side_streams=side_streams)
        self._library = library
        self._constants = constants
        self._arena = arena
        self._device = device
        self._use_graphs = use_cuda_graphs
        self.profiler: Profiler | None = None  # runs the steps instead, if there is one
        self._tables = DeviceTables(device)
        classes = [v.name for v in graph.of_kind(ValueKind.INPUT) if v.name.startswith("slot_")]
        capacity = (4 + len(classes)) * (build.max_num_tokens + 64) + 6 * (
            build.max_batch_size + 64
        )
        self._inputs = StepInputs(2 * capacity + 2 * MAX_CHANGES, device)
        self._torch_streams = [driver.new_stream(device) for _ in range(NUM_STREAMS)]
        self.main = self._torch_streams[0]
        handles = [stream.cuda_stream for stream in self._torch_streams]
        self._streams = (ctypes.c_void_p * NUM_STREAMS)(*handles)
        events = [driver.new_event() for p in self.placements if p.recorded]
        self._events = (ctypes.c_void_p * max(len(events), 1))(*events)
        self._programs: OrderedDict[StepSize, _Loaded] = OrderedDict()
        self._graphs: dict[StepSize, Any] = {}
        self._buffers: dict[str, torch.Tensor] = {}  # of outputs and of the streams input
        self._version = (-1, -1)  # of the memory that programs and graphs point into
        driver.free_with(self, events, self._graphs)

    def step(
        self, batch: StepBatch, *, want_streams: bool, streams: torch.Tensor | None = None
    ) -> StepOutput:
        """Run a batch; `streams` is the input of that name where the graph has one."""
        size = _size(batch)
        self.main.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self.main):
            loaded = self._load(size, batch)
            if streams is not None:
                self._buffers["streams"][: streams.numel()].copy_(streams.reshape(-1))
            if self.profiler is None:
                self._run(size, loaded)
            else:
                self.profiler.run(loaded.program, self.main.cuda_stream, _spans(batch))
            output = self._output(loaded.program, want_streams=want_streams)
        torch.cuda.current_stream(self._device).wait_stream(self.main)
        return output

    def reserve(self, largest: Program) -> None:
        """Take the memory of a step at once, so that no step up to it moves what graphs point to."""
        with torch.cuda.stream(self.main):
            self._arena.reserve(largest.arena_bytes)
            for name in self._kept():
                placed = largest.tensor(name)
                self._keep(name, prod(placed.shape), placed.dtype)

    def warm_up(self, batch: StepBatch) -> None:
        """Run a batch of nothing but padding and capture it."""
        size = _size(batch)
        self.main.wait_stream(torch.cuda.current_stream(self._device))  # weights may still come
        with torch.cuda.stream(self.main):
            loaded = self._load(size, batch)
            self._launch(loaded.program)
            self._run(size, loaded)
        torch.cuda.current_stream(self._device).wait_stream(self.main)

    def _load(self, size: StepSize, batch: StepBatch) -> _Loaded:
        """The program of a size, with the batch's arrays and tables on their way to it."""
        stream = self.main.cuda_stream
        changes = self._tables.update(batch)
        loaded = self._program(size, batch)
        count, at = changes.places.size, loaded.changes
        arrays = batch.arrays() | {"places": changes.places, "ids": changes.ids}
        offsets = loaded.offsets | {"places": at, "ids": at + count}
        self._inputs.upload(arrays, offsets, stream)
        if count:
            places, ids = self._inputs.address(at), self._inputs.address(at + count)
            self._library.scatter(self._tables.address, places, ids, count, stream)
        self._tables.done()
        return loaded

    def _run(self, size: StepSize, loaded: _Loaded) -> None:
        if not (self._use_graphs and size.is_decode):
            self._launch(loaded.program)
            return
        if size not in self._graphs:
            self._graphs[size] = self._capture(loaded.program)
        driver.launch_graph(self._graphs[size], self.main.cuda_stream)

    def _launch(self, program: Program) -> None:
        try:
            program.run(self._streams, self._events)
        except BaseException:
            for stream in self._torch_streams:  # side streams, too, let go of memory and pages
                stream.synchronize()
            raise

    def _capture(self, program: Program) -> Any:
        driver.begin_capture(self.main.cuda_stream)
        try:
            program.run(self._streams, self._events)
        except BaseException:
            driver.abandon_capture(self.main.cuda_stream)
            raise
        return driver.end_capture(self.main.cuda_stream)

    def _program(self, size: StepSize, batch: StepBatch) -> _Loaded:
        self._forget_moved()
        if size in self._programs:
            self._programs.move_to_end(size)
            return self._programs[size]
        counts = {name: array.size for name, array in batch.arrays().items()}
        offsets, end = pack(counts)
        bound = {**self._constants, **self._tables.placed}
        for name, count in counts.items():
            address = self._inputs.address(offsets[name])
            bound[name] = Placed.dense(address, DType.I32, (count,))
        bound["decode_carrier"] = Placed.dense(
            self._inputs.address(0), DType.I8, (size.num_decodes,)
        )
        sizes = _sizes(size)
        for name in self._kept():
            bound[name] = self._bind_buffer(name, sizes)
        program = Program(self.graph, self.placements, self._library, sizes, bound)
        base = self._arena.reserve(program.arena_bytes)
        self._forget_moved()
        program.place(base)
        loaded = _Loaded(program, offsets, end)
        self._programs[size] = loaded
        if len(self._programs) > _MAX_PROGRAMS:
            uncaptured = (old for old in self._programs if old not in self._graphs)
            del self._programs[next(uncaptured)]  # at least the one that was just added
        return loaded

    def _kept(self) -> list[str]:
        """Values in buffers of their own: outputs, and the streams that come from another network."""
        given = [v.name for v in self.graph.of_kind(ValueKind.INPUT) if v.name == "streams"]
        return given + list(self.graph.outputs.values())

    def _bind_buffer(self, name: str, sizes: Mapping[str, int]) -> Placed:
        value = self.graph.values[name]
        shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in value.shape)
        return Placed.dense(self._keep(name, prod(shape), value.dtype), value.dtype, shape)

    def _keep(self, name: str, count: int, dtype: DType) -> int:
        """The address of a buffer that has at least `count` elements."""
        if name not in self._buffers or self._buffers[name].numel() < count:
            self._drop_programs()
            self._buffers.pop(name, None)  # its memory goes before the larger one comes
            self._buffers[name] = torch.empty(count, dtype=TORCH_DTYPES[dtype], device=self._device)
        return int(self._buffers[name].data_ptr())

    def _forget_moved(self) -> None:
        """Programs and graphs hold addresses: drop them when what they point to has moved."""
        version = (self._arena.version, self._tables.version)
        if version != self._version:
            self._drop_programs()
            self._version = version

    def _drop_programs(self) -> None:
        if self._graphs:
            self.main.synchronize()
        for captured in self._graphs.values():
            driver.destroy_graph(captured)
        self._graphs.clear()
        self._programs.clear()

    def _output(self, program: Program, *, want_streams: bool) -> StepOutput:
        found = {}
        for role, name in self.graph.outputs.items():
            if role == "logits" or want_streams:
                shape = program.tensor(name).shape
                found[role] = self._buffers[name][: prod(shape)].view(shape).clone()
        return StepOutput(logits=found["logits"], streams=found.get("streams"))


def _spans(batch: StepBatch) -> list[Span]:
    """The sequences of a batch, without padding."""
    fed = np.diff(batch.query_start)
    lengths = zip(batch.seq_lens.tolist(), fed.tolist(), strict=True)
    return [Span(length, count) for length, count in lengths if length and count]


def _size(batch: StepBatch) -> StepSize:
    return StepSize(
        batch.token_ids.size, batch.seq_lens.size, batch.num_decodes, batch.logits_rows.size
    )


def _sizes(size: StepSize) -> dict[str, int]:
    """The graph's run-time sizes."""
    return {
        "num_tokens": size.num_tokens,
        "num_seqs": size.num_seqs,
        "num_seqs_plus_1": size.num_seqs + 1,
        "num_logits": size.num_logits,
        "num_decodes": size.num_decodes,
    }
