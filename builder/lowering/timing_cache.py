"""The file in which timings of kernels outlive a build."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from dsv4_trt.errors import BuildError


def read_timings(path: Path) -> bytes:
    """The timings of an earlier build; raises `BuildError` for a file that can not be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BuildError(f"the timing cache {path} can not be read: {error.strerror}") from error


def write_timings(path: Path, timings: bytes) -> None:
    """Write the file, or replace it whole; `BuildError` leaves what was there."""
    place = path.resolve()
    new = place.with_name(f".{place.name}.{os.getpid()}.partial")
    try:
        new.write_bytes(timings)
        new.replace(place)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise BuildError(f"the timing cache {path} can not be written: {error.strerror}") from error


def can_be_written(path: Path) -> bool:
    """Whether `write_timings` will find a folder to write into, and no device or folder in its place."""
    place = path.resolve()
    is_free = place.is_file() or not place.exists()
    return is_free and os.access(place.parent, os.W_OK)
