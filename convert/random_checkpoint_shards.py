"""Sharded safetensors files written tensor by tensor, so that memory does not grow with them.

File layout: 8 bytes little-endian header length, a JSON header padded with spaces to 8 bytes, then the
tensors without gaps. Wider elements come first, which keeps every tensor aligned to its element size.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsv4_trt.rank_tensors import TensorSpec

INDEX_FILE = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a sharded checkpoint."""

    file_name: str
    tensors: tuple[TensorSpec, ...]  # in file order

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, header not included."""
        return sum(tensor.nbytes for tensor in self.tensors)


def plan_shards(tensors: Iterable[TensorSpec], shard_bytes: int) -> list[Shard]:
    """Split tensors, in order, into files of at most `shard_bytes`, one tensor at least in each."""
    groups: list[list[TensorSpec]] = [[]]
    size = 0
    for tensor in tensors:
        if groups[-1] and size + tensor.nbytes > shard_bytes:
            groups.append([])
            size = 0
        groups[-1].append(tensor)
        size += tensor.nbytes
    count = len(groups)
    return [
        Shard(
            f"model-{i:05d}-of-{count:05d}.safetensors",
            tuple(sorted(group, key=lambda tensor: -tensor.dtype.itemsize)),
        )
        for i, group in enumerate(groups, 1)
    ]


def write_shard(
    folder: Path,
    shard: Shard,
    values: Callable[[TensorSpec], Iterator[NDArray[Any]]],
    progress: Callable[[int], None],
) -> None:
    """Write one file; `values` yields a tensor's elements in order, `progress` is told bytes."""
    with (folder / shard.file_name).open("xb") as file:
        file.write(_header(shard))
        for tensor in shard.tensors:
            written = 0
            for chunk in values(tensor):
                file.write(chunk.reshape(-1).view(np.uint8).data)
                written += chunk.nbytes
                progress(chunk.nbytes)
            assert written == tensor.nbytes, f"{tensor.name}: {written} of {tensor.nbytes} bytes"


def _header(shard: Shard) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for tensor in shard.tensors:
        entries[tensor.name] = {
            "dtype": str(tensor.dtype),
            "shape": list(tensor.shape),
            "data_offsets": [at, at + tensor.nbytes],
        }
        at += tensor.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def index_json(shards: list[Shard]) -> dict[str, Any]:
    """The data of the index file."""
    files = {t.name: shard.file_name for shard in shards for t in shard.tensors}
    return {
        "metadata": {"total_size": sum(shard.nbytes for shard in shards)},
        "weight_map": dict(sorted(files.items())),
    }
