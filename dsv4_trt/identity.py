"""The identity of a rank file: a digest of every name, dtype and shape and of sampled bytes.

Cheap enough for 800 GB (it reads the header and at most `SAMPLES` short pieces of each tensor), and
different for weights of the same shapes that differ anywhere near a sample. Full digests are in the
checkpoint's manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from dsv4_trt.errors import CheckpointError

SAMPLES = 16  # pieces per tensor
SAMPLE_BYTES = 64


def weights_identity(path: Path) -> str:
    """Hex digest of the safetensors file `path`; raises `CheckpointError` if it is not one."""
    digest = hashlib.sha256()
    file = os.open(path, os.O_RDONLY)
    try:
        length = int.from_bytes(os.pread(file, 8, 0), "little")
        header = _header(path, os.pread(file, length, 8), length)
        for name in sorted(header):
            entry = header[name]
            start, end = entry["data_offsets"]
            digest.update(f"{name}|{entry['dtype']}|{entry['shape']}|".encode())
            for offset in _sample_offsets(end - start):
                size = min(SAMPLE_BYTES, end - start - offset)
                digest.update(os.pread(file, size, 8 + length + start + offset))
    finally:
        os.close(file)
    return digest.hexdigest()


def _header(path: Path, raw: bytes, length: int) -> dict[str, dict[str, list[int]]]:
    try:
        header = json.loads(raw)
    except ValueError:
        raise CheckpointError(
            f"{path} has no readable safetensors header of {length} bytes; it was cut short or is "
            "another kind of file"
        ) from None
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


def _sample_offsets(nbytes: int) -> list[int]:
    """Evenly spread starts, the first and the last piece of the tensor included."""
    last = max(nbytes - SAMPLE_BYTES, 0)
    return sorted({last * i // (SAMPLES - 1) for i in range(SAMPLES)})
