"""An output file that appears whole or not at all."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsv4_trt.errors import ConfigError


@contextmanager
def published(option: str, output: Path, *suffixes: str) -> Iterator[Path]:
    """A file beside `output` that takes its place at the end, or goes away on any error.

    It is there from the start, so that a place that can not be written costs no work. Raises
    `ConfigError`, which names `option`, for such a place and for a name of another suffix than is
    given, if any is.
    """
    if output.is_dir():
        raise ConfigError(f"{option} {output} is a folder; expected the name of a file")
    if suffixes and output.suffix not in suffixes:
        raise ConfigError(
            f"{option} {output} does not end in {' or '.join(suffixes)}, which is the format it gets; "
            "name it so"
        )
    partial = output.with_name(f".{output.name}.{secrets.token_hex(4)}.partial")
    try:
        partial.touch(exist_ok=False)
    except OSError as error:
        raise ConfigError(f"{option} {output} can not be written: {error.strerror}") from error
    try:
        yield partial
        partial.rename(output)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
