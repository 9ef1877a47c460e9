"""One graph on the GPU: its program, captured graphs of decode steps, and what they read and write."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import prod
from typing import Any

import numpy as np
import torch

from dsv4_trt.contract import BuildSpec
from dsv4_trt.graph import Graph, Value, ValueKind
from dsv4_trt.plugins.costs import Span
from dsv4_trt.plugins.cuda_ops import TORCH_DTYPES
from dsv4_trt.plugins.library import Library
from dsv4_trt.runtime.batch import StepBatch, StepOutput
from dsv4_trt.runtime.cuda import driver
from dsv4_trt.runtime.cuda.footprint import kept_values
from dsv4_trt.runtime.cuda.inputs import StepInputs, pack
from dsv4_trt.runtime.cuda.profile import Profiler
from dsv4_trt.runtime.cuda.schedule import NUM_STREAMS
from dsv4_trt.runtime.cuda.step_program import StepProgram
from dsv4_trt.runtime.cuda.step_size import StepSize, largest_step
from dsv4_trt.runtime.cuda.tables import MAX_CHANGES, DeviceTables


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


class Network:
    """Runs one graph by its program; steps of one network come one after another.

    Weights and pools are bound to the program already; all else that it reads or writes is here.
    """

    def __init__(
        self,
        graph: Graph,
        program: StepProgram,
        library: Library,
        build: BuildSpec,
        arena: SharedArena,
        device: torch.device,
        *,
        use_cuda_graphs: bool = True,
    ) -> None:
        self.graph = graph
        self._program = program
        self._library = library
        self._build = build
        self._arena = arena
        self._device = device
        self._use_cuda_graphs = use_cuda_graphs
        self.profiler: Profiler | None = None  # runs the steps instead, if there is one
        self._tables = DeviceTables(device)
        # four arrays with a row a token and one more a class, three with a row a sequence: room to spare
        classes = [v.name for v in graph.of_kind(ValueKind.INPUT) if v.name.startswith("slot_")]
        capacity = (4 + len(classes)) * (build.max_num_tokens + 64) + 6 * (
            build.max_batch_size + 64
        )
        self._inputs = StepInputs(2 * capacity + 2 * MAX_CHANGES, device)
        self._torch_streams = [driver.new_stream(device) for _ in range(NUM_STREAMS)]
        self.main = self._torch_streams[0]
        handles = [stream.cuda_stream for stream in self._torch_streams]
        self._streams = (ctypes.c_void_p * NUM_STREAMS)(*handles)
        events = [driver.new_event() for _ in range(program.num_events)]
        self._events = (ctypes.c_void_p * max(len(events), 1))(*events)
        self._captured: dict[StepSize, Any] = {}
        self._buffers: dict[str, torch.Tensor] = {}  # of outputs and of the streams input
        self._version = (-1, -1)  # of the arena and the tables that captured graphs point into
        self._most_bytes = 0  # of the arena: what any step takes
        self._base = 0  # where the arena is
        driver.free_with(self, events, self._captured)

    def step(
        self, batch: StepBatch, *, want_streams: bool, streams: torch.Tensor | None = None
    ) -> StepOutput:
        """Run a batch; `streams` is the input of that name where the graph has one."""
        size = StepSize.of(batch)
        with self._on_main():
            inputs = self._load(size, batch)
            if streams is not None:
                self._buffers["streams"][: streams.numel()].copy_(streams.reshape(-1))
            if self.profiler is None:
                self._run(size, inputs)
            else:
                self._place(inputs)
                self.profiler.run(self.main.cuda_stream, _spans(batch))
            return self._output(size, want_streams=want_streams)

    def warm_up(self, batch: StepBatch) -> None:
        """Run a batch of nothing but padding, capture it, and replay that: a graph's first time is slow."""
        size = StepSize.of(batch)
        with self._on_main():
            inputs = self._load(size, batch)
            for _ in range(2):
                self._run(size, inputs)

    @contextmanager
    def _on_main(self) -> Iterator[None]:
        """Work for the main stream, behind what torch's has; torch's waits for it.

        After an error no stream runs on: memory and pages go to others at once.
        """
        current = torch.cuda.current_stream(self._device)
        self.main.wait_stream(current)
        try:
            with torch.cuda.stream(self.main):
                yield
        except BaseException:
            for stream in self._torch_streams:
                with suppress(RuntimeError):  # of a lost device: the first error is the one to tell
                    stream.synchronize()
            raise
        current.wait_stream(self.main)

    def _load(self, size: StepSize, batch: StepBatch) -> dict[str, int]:
        """Make room, and put the batch's arrays and tables on their way; returns the arrays' addresses."""
        stream = self.main.cuda_stream
        changes = self._tables.update(batch)
        self._make_room(size)
        count = changes.places.size
        arrays = batch.arrays()
        offsets, end = pack({name: array.size for name, array in arrays.items()})
        addresses = {name: self._inputs.address(offset) for name, offset in offsets.items()}
        arrays |= {"places": changes.places, "ids": changes.ids}
        self._inputs.upload(arrays, offsets | {"places": end, "ids": end + count}, stream)
        if count:
            places, ids = self._inputs.address(end), self._inputs.address(end + count)
            self._library.scatter(self._tables.address, places, ids, count, stream)
        self._tables.done()
        # of the carrier only the length is read: any address will do
        return addresses | {"decode_carrier": self._inputs.address(0)}

    def _make_room(self, size: StepSize) -> None:
        """Set the program to a size and take memory for it; at first for any step.

        So no later step moves what graphs point to, but one with more rows of logits than sequences.
        """
        if self._version[1] != self._tables.version:
            self._program.bind(self._tables.placed)
            self._most_bytes = self._program.most_bytes(self._build)
        self._forget_moved()
        if size in self._captured and self.profiler is None:
            return  # it has all that it needs
        nbytes = self._program.resize(size)
        self._base = self._arena.reserve(max(nbytes, self._most_bytes))
        for value in kept_values(self.graph):
            self._keep(value, size)
        self._forget_moved()

    def _place(self, inputs: Mapping[str, int]) -> None:
        kept = {name: int(buffer.data_ptr()) for name, buffer in self._buffers.items()}
        self._program.place(self._base, {**inputs, **kept})

    def _run(self, size: StepSize, inputs: Mapping[str, int]) -> None:
        """Replay the graph of this size, or run the step as it is and then capture it for the next one.

        In this order, as TensorRT and kernels that load late ask for a run before they are captured.
        """
        if size in self._captured:
            driver.launch_graph(self._captured[size], self.main.cuda_stream)
            return
        self._place(inputs)
        self._launch()
        if self._use_cuda_graphs and size.is_decode:
            self._captured[size] = self._capture()

    def _launch(self) -> None:
        self._program.run(self._streams, self._events)

    def _capture(self) -> Any:
        driver.begin_capture(self.main.cuda_stream)
        try:
            self._launch()
        except BaseException:
            driver.abandon_capture(self.main.cuda_stream)
            raise
        return driver.end_capture(self.main.cuda_stream)

    def _keep(self, value: Value, size: StepSize) -> None:
        """Have a buffer that holds a value of this size, or of the largest step."""
        name = value.name
        count = max(prod(s.shape(value)) for s in (size, largest_step(self._build)))
        if name not in self._buffers or self._buffers[name].numel() < count:
            self._drop_captured()
            self._buffers.pop(name, None)  # its memory goes before the larger one comes
            dtype = TORCH_DTYPES[value.dtype]
            self._buffers[name] = torch.empty(count, dtype=dtype, device=self._device)

    def _forget_moved(self) -> None:
        """Captured graphs hold addresses: drop them when what they point to has moved."""
        version = (self._arena.version, self._tables.version)
        if version != self._version:
            self._drop_captured()
            self._version = version

    def _drop_captured(self) -> None:
        if self._captured:
            self.main.synchronize()
        for captured in self._captured.values():
            driver.destroy_graph(captured)
        self._captured.clear()

    def _output(self, size: StepSize, *, want_streams: bool) -> StepOutput:
        found = {}
        for role, name in self.graph.outputs.items():
            if role == "logits" or want_streams:
                shape = size.shape(self.graph.values[name])
                found[role] = self._buffers[name][: prod(shape)].view(shape).clone()
        return StepOutput(logits=found["logits"], streams=found.get("streams"))


def _spans(batch: StepBatch) -> list[Span]:
    """The sequences of a batch, without padding."""
    fed = np.diff(batch.query_start)
    lengths = zip(batch.seq_lens.tolist(), fed.tolist(), strict=True)
    return [Span(length, count) for length, count in lengths if length and count]
