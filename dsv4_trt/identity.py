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
        size = os.fstat(file).st_size
        if 8 + length > size:
            raise ValueError(f"the header needs {8 + length} bytes, the file has {size}")
        header = json.loads(os.pread(file, length, 8))
        for name in sorted(header.keys() - {"__metadata__"}):
            entry = header[name]
            start, end = entry["data_offsets"]
            digest.update(f"{name}|{entry['dtype']}|{entry['shape']}|".encode())
            for offset in _sample_offsets(end - start):
                sample = min(SAMPLE_BYTES, end - start - offset)
                digest.update(os.pread(file, sample, 8 + length + start + offset))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise CheckpointError(
            f"{path} is no whole safetensors file ({type(error).__name__}: {error}); copy it again "
            "from where it was converted, or convert again"
        ) from error
    finally:
        os.close(file)
    return digest.hexdigest()


def _sample_offsets(nbytes: int) -> list[int]:
    """Evenly spread starts, the first and the last piece of the tensor included."""
    last = max(nbytes - SAMPLE_BYTES, 0)
    return sorted({last * i // (SAMPLES - 1) for i in range(SAMPLES)})
