"""SIGTERM as an exception, so that what a command began is undone as after Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

TERMINATED = 128 + signal.SIGTERM  # exit code by shell convention


@contextmanager
def sigterm_unwinds() -> Iterator[None]:
    """Within this, SIGTERM raises `SystemExit`."""

    def terminate(signum: int, frame: object) -> None:
        raise SystemExit(TERMINATED)

    former = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
