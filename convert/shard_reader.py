"""Positional reads from many files by many threads.

Reads go through `preadv` into buffers of the caller, never through a mapping: mapped pages would
count as resident memory, and a shard that shrinks under a mapping kills the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dsv4_trt.errors import CheckpointError
from dsv4_trt.safetensors_file import StoredTensor

Bytes = npt.NDArray[np.uint8]


class ShardReader:
    """Open files by path; safe to share between threads."""

    def __init__(self, descriptors: dict[Path, int]) -> None:
        self._descriptors = descriptors

    def read(self, tensor: StoredTensor, offset: int, nbytes: int) -> Bytes:
        """Fresh bytes `offset` .. `offset + nbytes` of the tensor.

        Raises `CheckpointError` where the file ends early.
        """
        buffer = np.empty(nbytes, np.uint8)
        view, position, done = buffer.data, tensor.start + offset, 0
        while done < nbytes:
            count = os.preadv(self._descriptors[tensor.path], [view[done:]], position + done)
            if count == 0:
                raise CheckpointError(
                    f"{tensor.path}: the file ended at byte {position + done} inside tensor "
                    f"'{tensor.name}'; it became shorter while it was read"
                )
            done += count
        return buffer

    def read_rows(
        self, tensor: StoredTensor, rows: tuple[int, int], cols: tuple[int, int]
    ) -> Bytes:
        """Part of the tensor seen as [rows, columns of bytes]; the ranges are half open."""
        width = row_bytes(tensor)
        whole = self.read(tensor, rows[0] * width, (rows[1] - rows[0]) * width)
        return np.ascontiguousarray(whole.reshape(-1, width)[:, cols[0] : cols[1]])


def row_bytes(tensor: StoredTensor) -> int:
    """Bytes of one index of the first axis; a scalar is one row."""
    return tensor.nbytes // tensor.shape[0] if tensor.shape else tensor.nbytes


@contextmanager
def open_shards(paths: Iterable[Path]) -> Iterator[ShardReader]:
    """Open every file for the time of the context."""
    with ExitStack() as stack:
        descriptors: dict[Path, int] = {}
        for path in paths:
            descriptors[path] = os.open(path, os.O_RDONLY)
            stack.callback(os.close, descriptors[path])
        yield ShardReader(descriptors)
