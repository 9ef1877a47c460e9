"""Signals that end a command as exceptions, so that what it began is undone as after Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)  # the latter when the terminal closes


@contextmanager
def signals_unwind() -> Iterator[None]:
    """Within this, a signal raises `SystemExit`; what is undone then is not disturbed by another one."""

    def end(signum: int, frame: object) -> None:
        for number in former:
            signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + signum)  # exit code by shell convention

    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    # one that is ignored stays so, as with nohup
    former = {n: h for n, h in handlers.items() if h not in (signal.SIG_IGN, None)}
    for number in former:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
