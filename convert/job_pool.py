"""Threads that work through a list of jobs; the first failure stops them all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")


class Stopped(Exception):
    """Another job failed or the run was interrupted; this one gave up between two chunks."""


class JobPool:
    """A context of worker threads. Long jobs call `check` now and then."""

    def __init__(self, workers: int) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="convert")
        self._stop = threading.Event()

    def __enter__(self) -> JobPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._stop.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def check(self) -> None:
        """Raise `Stopped` once the work is for nothing."""
        if self._stop.is_set():
            raise Stopped

    def run(self, jobs: Iterable[Callable[[], T]]) -> list[T]:
        """Results of all jobs, in order; raises the failure that stopped them or the caller's interrupt."""
        futures = [self._threads.submit(self._guarded, job) for job in jobs]
        wait(futures)
        errors = [error for future in futures if (error := future.exception()) is not None]
        for error in errors:
            if not isinstance(error, Stopped):
                raise error
        return [future.result() for future in futures]

    def _guarded(self, job: Callable[[], T]) -> T:
        """The job, unless one has failed already; its own failure stops the others at once."""
        self.check()
        try:
            return job()
        except BaseException:
            self._stop.set()
            raise
