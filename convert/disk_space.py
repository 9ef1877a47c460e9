"""How much disk a conversion needs, and whether it is there."""

from __future__ import annotations

import os
from pathlib import Path

from dsv4_trt.contract import rank_file
from dsv4_trt.convert.conversion import Conversion
from dsv4_trt.errors import CapacityError

SMALL_FILES_BYTES = 16 << 20  # config, manifest, journal: a few hundred bytes per tensor
BLOCK = 512  # unit of st_blocks


def peak_bytes(conversion: Conversion) -> int:
    """Most bytes that are on the disk at once: the source is only read, the output written once."""
    copied = sum(path.stat().st_size for path in conversion.copied)
    return conversion.nbytes + copied + SMALL_FILES_BYTES


def free_bytes(folder: Path) -> int:
    """Bytes that a normal user may still write on the disk of `folder` or its nearest parent."""
    while not folder.exists():
        folder = folder.parent
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


def check_space(conversion: Conversion, folder: Path) -> None:
    """Raise `CapacityError` unless what is still to be written to `folder` fits on its disk."""
    present = [folder / rank_file(rank) for rank in range(len(conversion.layouts))]
    allocated = sum(path.stat().st_blocks * BLOCK for path in present if path.exists())
    needed, free = peak_bytes(conversion) - allocated, free_bytes(folder)
    if needed > free:
        raise CapacityError(
            f"the rank checkpoint needs {needed} bytes on the disk of {folder.parent.parent}, "
            f"{free} are free; free {needed - free} more or choose another output_dir"
        )
