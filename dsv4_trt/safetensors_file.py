"""Safetensors headers, checked in full, and nothing of the tensors' bytes.

A file is: header length (8 bytes, little endian), JSON header, data. A header that lies is refused here:
offsets that overlap, leave a hole, pass the end or disagree with dtype and shape.
Source of the rules: the format section of the safetensors README.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from dsv4_trt.dtypes import DType
from dsv4_trt.errors import CheckpointError
from dsv4_trt.json_fields import parse_json
from dsv4_trt.shown import is_plain, shown

MAX_HEADER_BYTES = 100_000_000  # the limit of the format
MAX_OFFSET = 2**63 - 1  # of a file
MAX_SIZES = 8  # of one shape; official tensors have 2
METADATA = "__metadata__"
LENGTH_BYTES = 8
DTYPES = {str(dtype): dtype for dtype in DType}
ENTRY_KEYS = {"dtype", "shape", "data_offsets"}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where one tensor lies."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    path: Path
    start: int  # byte offset in the file
    nbytes: int


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """One file: its tensors in the order of their bytes."""

    path: Path
    size: int  # bytes of the whole file
    mtime_ns: int
    header_sha256: str
    metadata: dict[str, str]
    tensors: tuple[StoredTensor, ...]


def read_header(path: Path) -> SafetensorsFile:
    """Read and check one header; raises `CheckpointError` naming the file and the tensor."""
    try:
        with path.open("rb") as file:
            raw = file.read(LENGTH_BYTES)
            stat = path.stat()
            length = _header_length(path, raw, stat.st_size)
            text = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path} can not be read: {error.strerror or error}") from error
    header = _parse(path, text)
    metadata = header.pop(METADATA, {})
    data_start = LENGTH_BYTES + length
    tensors = [_tensor(path, name, entry, data_start) for name, entry in header.items()]
    tensors.sort(key=lambda tensor: (tensor.start, tensor.nbytes))
    _check_cover(path, tensors, data_start, stat.st_size)
    return SafetensorsFile(
        path=path,
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        header_sha256=hashlib.sha256(text).hexdigest(),
        metadata=metadata,
        tensors=tuple(tensors),
    )


def _bad(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(f"{path}: {problem}; the file is damaged, fetch it again")


def _header_length(path: Path, raw: bytes, size: int) -> int:
    if len(raw) < LENGTH_BYTES:
        raise _bad(path, f"the file has {size} bytes, expected at least {LENGTH_BYTES}")
    length = int.from_bytes(raw, "little")
    if length > MAX_HEADER_BYTES:
        raise _bad(path, f"the header length is {length}, expected at most {MAX_HEADER_BYTES}")
    if LENGTH_BYTES + length > size:
        raise _bad(path, f"the header needs {LENGTH_BYTES + length} bytes, the file has {size}")
    return length


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    try:
        header = parse_json(text)
    except ValueError as error:
        raise _bad(path, f"the header is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise _bad(path, f"the header is a {type(header).__name__}, expected an object")
    metadata = header.get(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _bad(path, f"{METADATA} is {shown(metadata)}, expected strings by name")
    return header


def _tensor(path: Path, name: str, entry: Any, data_start: int) -> StoredTensor:
    if not is_plain(name):
        raise _bad(
            path, f"the header names a tensor {shown(name)}, expected a short printable name"
        )
    if not isinstance(entry, dict) or entry.keys() != ENTRY_KEYS:
        raise _bad(path, f"the entry of '{name}' is not dtype, shape and data_offsets")
    dtype = DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if dtype is None:
        raise CheckpointError(
            f"{path}: tensor '{name}' has dtype {shown(entry['dtype'])}; "
            f"expected one of {', '.join(DType)}, no other type occurs in a DeepSeek-V4 checkpoint"
        )
    shape = _naturals(path, name, "shape", entry["shape"])
    offsets = _naturals(path, name, "data_offsets", entry["data_offsets"])
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _bad(
            path, f"data_offsets of '{name}' are {shown(list(offsets))}, expected [begin, end]"
        )
    nbytes = prod(shape) * dtype.itemsize
    if offsets[1] - offsets[0] != nbytes:
        raise _bad(
            path,
            f"data_offsets of '{name}' span {offsets[1] - offsets[0]} bytes, "
            f"{dtype} {list(shape)} needs {nbytes}",
        )
    return StoredTensor(name, dtype, shape, path, data_start + offsets[0], nbytes)


def _naturals(path: Path, name: str, what: str, value: Any) -> tuple[int, ...]:
    """At most `MAX_SIZES` whole numbers that are offsets or sizes a file can have."""
    if (
        not isinstance(value, list)
        or len(value) > MAX_SIZES
        or not all(type(n) is int and 0 <= n <= MAX_OFFSET for n in value)
    ):
        raise _bad(
            path,
            f"{what} of '{name}' is {shown(value)}, expected at most {MAX_SIZES} whole numbers",
        )
    return tuple(value)


def _check_cover(path: Path, tensors: list[StoredTensor], start: int, size: int) -> None:
    """The tensors must cover the data exactly, end to end."""
    cursor, before = start, "the header"
    for tensor in tensors:
        if tensor.start < cursor:
            raise _bad(path, f"tensor '{tensor.name}' overlaps {before}")
        if tensor.start > cursor:
            raise _bad(
                path,
                f"{tensor.start - cursor} bytes between {before} and tensor '{tensor.name}' "
                "belong to no tensor",
            )
        cursor, before = tensor.start + tensor.nbytes, f"tensor '{tensor.name}'"
        if cursor > size:
            raise _bad(
                path,
                f"tensor '{tensor.name}' ends at byte {cursor}, the file has {size} bytes: "
                "it was cut short or its header lies",
            )
    if cursor != size:
        raise _bad(path, f"{size - cursor} bytes after {before} belong to no tensor")
