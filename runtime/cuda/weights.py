"""Weights on the device, in one arena: read from the rank file through pinned memory, or made up there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, groupby
from math import prod
from operator import itemgetter
from pathlib import Path

import torch

from dsv4_trt.graph import Graph, Value
from dsv4_trt.plugins.library import FilePart, Library
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.cuda.dummy_weights import fill_dummy
from dsv4_trt.runtime.cuda.placed import Placed
from dsv4_trt.runtime.weights import stored_weights, wanted_weights

_ALIGNMENT = 256  # bytes, of every tensor in the arena
_MOST_READERS = 32  # more would wait for the bus
# Each reader has two pieces of pinned memory: small enough that they stay in the processor's caches between
# reading and sending, large enough that a copy's own cost does not count.
_PIECE_BYTES = 4 << 20
_BYTES_AT_ONCE = 8 << 30  # what a call takes before Ctrl-C is heard


@dataclass(frozen=True, slots=True)
class DeviceWeights:
    """Weights by name, in memory that lives as long as this."""

    arena: torch.Tensor  # int8
    placed: dict[str, Placed]


def load_device_weights(
    bundle: Bundle, graphs: list[Graph], library: Library, device: torch.device
) -> DeviceWeights:
    """Every weight that the graphs name; `BundleMismatch` if the file has another dtype or shape."""
    wanted = wanted_weights(graphs)
    offsets, total = _offsets(wanted)
    arena = torch.empty(total, dtype=torch.int8, device=device)
    base = arena.data_ptr()
    if bundle.is_dummy:
        for name, value in wanted.items():
            fill_dummy(arena, offsets[name], value, bundle.spec, bundle.mapping)
    else:
        file = bundle.rank_files[0]
        parts = [
            FilePart(tensor.start, tensor.nbytes, base + offsets[tensor.name])
            for tensor in stored_weights(file, wanted)
        ]
        _copy(file, parts, library, device)
    placed = {
        name: Placed.dense(base + offsets[name], value.dtype, _static_shape(value))
        for name, value in wanted.items()
    }
    return DeviceWeights(arena, placed)


def _static_shape(value: Value) -> tuple[int, ...]:
    assert all(isinstance(dim, int) for dim in value.shape), f"weight {value.name} {value.shape}"
    return tuple(int(dim) for dim in value.shape)


def _offsets(wanted: dict[str, Value]) -> tuple[dict[str, int], int]:
    """Where each weight begins in the arena, and the bytes of all."""
    offsets, end = {}, 0
    for name, value in wanted.items():
        offsets[name] = end
        nbytes = prod(_static_shape(value)) * value.dtype.itemsize
        end += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
    return offsets, end


def _copy(path: Path, parts: list[FilePart], library: Library, device: torch.device) -> None:
    """Read parts of the rank file to the device, by a reader a core."""
    readers = min(len(os.sched_getaffinity(0)), _MOST_READERS)
    staging = torch.empty(2 * readers * _PIECE_BYTES, dtype=torch.int8, pin_memory=True)
    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # whose memory the arena may have been
        for some in _slices(parts):
            library.copy_file(path, some, staging.data_ptr(), staging.nbytes, readers)


def _slices(parts: list[FilePart]) -> Iterator[list[FilePart]]:
    """The parts in order, in lists of about `_BYTES_AT_ONCE`."""
    ends = accumulate(part.bytes for part in parts)
    numbered = zip((end // _BYTES_AT_ONCE for end in ends), parts, strict=True)
    for _, group in groupby(numbered, key=itemgetter(0)):
        yield [part for _, part in group]
