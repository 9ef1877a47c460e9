"""The identity of a rank file: a digest of every name, dtype and shape and of sampled bytes.

Cheap enough for 800 GB (it reads the header and at most `SAMPLES` short pieces of each tensor), and
different for weights of the same shapes that differ anywhere near a sample. Full digests are in the
checkpoint's manifest.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from dsv4_trt.safetensors_file import read_header

SAMPLES = 16  # pieces per tensor
SAMPLE_BYTES = 64


def weights_identity(path: Path) -> str:
    """Hex digest of the safetensors file `path`; raises `CheckpointError` if it is not a whole one."""
    digest = hashlib.sha256()
    tensors = read_header(path).tensors
    file = os.open(path, os.O_RDONLY)
    try:
        for tensor in sorted(tensors, key=lambda tensor: tensor.name):
            digest.update(f"{tensor.name}|{tensor.dtype}|{list(tensor.shape)}|".encode())
            for offset in _sample_offsets(tensor.nbytes):
                sample = min(SAMPLE_BYTES, tensor.nbytes - offset)
                digest.update(os.pread(file, sample, tensor.start + offset))
    finally:
        os.close(file)
    return digest.hexdigest()


def _sample_offsets(nbytes: int) -> list[int]:
    """Evenly spread starts, the first and the last piece of the tensor included."""
    last = max(nbytes - SAMPLE_BYTES, 0)
    return sorted({last * i // (SAMPLES - 1) for i in range(SAMPLES)})
