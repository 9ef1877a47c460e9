"""The layout of one rank file and positional writes into it.

Tensors lie by element size, largest first, so that each starts at a multiple of its element size (readers
that view the mapped file as a tensor need that), and otherwise in the order of `rank_tensors`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dsv4_trt.errors import CapacityError
from dsv4_trt.rank_tensors import LAYOUT_VERSION, TensorSpec
from dsv4_trt.safetensors_file import LENGTH_BYTES, METADATA

HEADER_ALIGN = 64
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_FALLOCATE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class RankLayout:
    """Header and tensor offsets of a rank file."""

    header: bytes  # with its length in front
    tensors: tuple[TensorSpec, ...]  # in the order of their bytes
    offsets: dict[str, int]  # byte in the file where each tensor starts
    nbytes: int  # of the whole file

    def digest(self, sha256: dict[str, str]) -> str:
        """Digest of the file from its tensors' digests: sha256 over the header and theirs in order."""
        whole = hashlib.sha256(self.header)
        for tensor in self.tensors:
            whole.update(bytes.fromhex(sha256[tensor.name]))
        return whole.hexdigest()


def rank_layout(tensors: Iterable[TensorSpec], rank: int, world_size: int) -> RankLayout:
    """Lay out the tensors of `rank`."""
    ordered = tuple(sorted(tensors, key=lambda tensor: -tensor.dtype.itemsize))
    entries: dict[str, object] = {
        METADATA: {
            "layout_version": str(LAYOUT_VERSION),
            "rank": str(rank),
            "world_size": str(world_size),
        }
    }
    relative, cursor = {}, 0
    for tensor in ordered:
        relative[tensor.name] = cursor
        entries[tensor.name] = {
            "dtype": str(tensor.dtype),
            "shape": list(tensor.shape),
            "data_offsets": [cursor, cursor + tensor.nbytes],
        }
        cursor += tensor.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(LENGTH_BYTES + len(text)) % HEADER_ALIGN)
    header = len(text).to_bytes(LENGTH_BYTES, "little") + text
    offsets = {name: len(header) + start for name, start in relative.items()}
    return RankLayout(header, ordered, offsets, len(header) + cursor)


class RankFile:
    """One rank file open for writing; safe to share between threads."""

    def __init__(self, path: Path, layout: RankLayout) -> None:
        """Open or create the file, its whole size allocated; raises `CapacityError` on a full disk."""
        self.path = path
        self.layout = layout
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.ftruncate(self._descriptor, layout.nbytes)
            self._allocate()
            self.write(0, layout.header)
        except BaseException:
            self.close()
            raise

    def _allocate(self) -> None:
        try:
            os.posix_fallocate(self._descriptor, 0, self.layout.nbytes)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise _full(self.path, self.layout.nbytes, error) from error
            if error.errno not in NO_FALLOCATE:
                raise

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write all of `data` at byte `offset`; raises `CapacityError` on a full disk."""
        view, done = memoryview(data).cast("B"), 0
        while done < len(view):
            try:
                done += os.pwrite(self._descriptor, view[done:], offset + done)
            except OSError as error:
                if error.errno in NO_SPACE:
                    raise _full(self.path, self.layout.nbytes, error) from error
                raise

    def sha256(self, tensor: TensorSpec, chunk_bytes: int) -> str:
        """Digest of a tensor's bytes as they are in the file."""
        digest = hashlib.sha256()
        start, end = self.layout.offsets[tensor.name], 0
        end = start + tensor.nbytes
        while start < end:
            data = os.pread(self._descriptor, min(chunk_bytes, end - start), start)
            if not data:
                break
            digest.update(data)
            start += len(data)
        return digest.hexdigest()

    def sync(self) -> None:
        """Bring the file to the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _full(path: Path, nbytes: int, error: OSError) -> CapacityError:
    free = os.statvfs(path.parent)
    return CapacityError(
        f"{path.name} needs {nbytes} bytes and the disk of {path.parent} is full "
        f"({error.strerror}, {free.f_bavail * free.f_frsize} bytes free); "
        "free some space or choose another output_dir"
    )
