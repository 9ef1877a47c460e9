"""Weights on the device, in one arena: read from the rank file through pinned memory, or made up there.

Threads read pieces of the file into pinned buffers while earlier pieces are on their way to the device.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import torch

from dsv4_trt.errors import BundleMismatch
from dsv4_trt.graph import Graph, Value
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.cuda import driver
from dsv4_trt.runtime.cuda.dummy_weights import fill_dummy
from dsv4_trt.runtime.cuda.program import Placed
from dsv4_trt.runtime.weights import stored_weights, wanted_weights
from dsv4_trt.safetensors_file import StoredTensor

ALIGNMENT = 256  # bytes, of every tensor in the arena
PIECE_BYTES = 16 << 20
_MOST_READERS = 32  # a core copies 3 to 5 GB/s out of the page cache


@dataclass(frozen=True, slots=True)
class DeviceWeights:
    """Weights by name, in memory that lives as long as this."""

    arena: torch.Tensor  # int8
    placed: dict[str, Placed]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes of the file that go to the arena together."""

    start: int  # in the file
    nbytes: int
    copies: tuple[tuple[int, int, int], ...]  # offset in the piece, offset in the arena, bytes


def load_device_weights(bundle: Bundle, graphs: list[Graph], device: torch.device) -> DeviceWeights:
    """Every weight that the graphs name; `BundleMismatch` if the file has another dtype or shape."""
    wanted = wanted_weights(graphs)
    offsets, total = _offsets(wanted)
    arena = torch.empty(total, dtype=torch.int8, device=device)
    base = arena.data_ptr()
    if bundle.is_dummy:
        for name, value in wanted.items():
            fill_dummy(arena, offsets[name], value, bundle.spec, bundle.mapping)
    else:
        pieces = _pieces(stored_weights(bundle.rank_files[0], wanted), offsets)
        _copy(bundle.rank_files[0], pieces, base, device)
    shapes = {name: _static_shape(value) for name, value in wanted.items()}
    placed = {
        name: Placed.dense(base + offsets[name], value.dtype, shapes[name])
        for name, value in wanted.items()
    }
    return DeviceWeights(arena, placed)


def _static_shape(value: Value) -> tuple[int, ...]:
    assert all(isinstance(dim, int) for dim in value.shape), f"weight {value.name} {value.shape}"
    return tuple(int(dim) for dim in value.shape)


def _offsets(wanted: dict[str, Value]) -> tuple[dict[str, int], int]:
    offsets, end = {}, 0
    for name, value in wanted.items():
        offsets[name] = end
        nbytes = value.dtype.itemsize
        for dim in _static_shape(value):
            nbytes *= dim
        end += -(-nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, end


def _pieces(tensors: list[StoredTensor], offsets: dict[str, int]) -> Iterator[_Piece]:
    """Pieces of at most `PIECE_BYTES`, in the file's order; a large tensor is cut."""
    start = end = 0
    copies: list[tuple[int, int, int]] = []
    for tensor in tensors:
        for cut in range(0, tensor.nbytes, PIECE_BYTES):
            at, nbytes = tensor.start + cut, min(PIECE_BYTES, tensor.nbytes - cut)
            if copies and at + nbytes - start > PIECE_BYTES:
                yield _Piece(start, end - start, tuple(copies))
                copies = []
            if not copies:
                start = at
            end = at + nbytes
            copies.append((at - start, offsets[tensor.name] + cut, nbytes))
    if copies:
        yield _Piece(start, end - start, tuple(copies))


def _copy(path: Path, pieces: Iterator[_Piece], base: int, device: torch.device) -> None:
    stream = driver.new_stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))  # whose memory the arena may have been
    num_readers = min(os.cpu_count() or 1, _MOST_READERS)
    num_buffers = 4 * num_readers  # read into, waiting for the copy engine, on their way
    buffers = torch.empty((num_buffers, PIECE_BYTES), dtype=torch.uint8, pin_memory=True)
    views = [memoryview(buffer.numpy()) for buffer in buffers]
    free: SimpleQueue[int] = SimpleQueue()
    for index in range(num_buffers):
        free.put(index)
    events = [driver.new_event() for _ in range(num_buffers)]
    file = os.open(path, os.O_RDONLY)

    def move(piece: _Piece) -> None:
        index = free.get()
        try:
            driver.wait_for_event(events[index])  # of the copy that read this buffer last
            _read(file, piece, views[index], path)
            source = buffers[index].data_ptr()
            for at, offset, nbytes in piece.copies:
                driver.copy_to_device(base + offset, source + at, nbytes, stream.cuda_stream)
            driver.record_event(events[index], stream.cuda_stream)
        finally:
            free.put(index)

    try:
        with ThreadPoolExecutor(num_readers) as readers:
            for _ in readers.map(move, pieces):
                pass
    finally:
        os.close(file)
        stream.synchronize()  # also after an error: the buffers go to others
        driver.free_events(events)


def _read(file: int, piece: _Piece, buffer: memoryview, path: Path) -> None:
    done = 0
    while done < piece.nbytes:
        count = os.preadv(file, [buffer[done : piece.nbytes]], piece.start + done)
        if not count:
            raise BundleMismatch(f"{path} ends inside its tensors; convert and build again")
        done += count
