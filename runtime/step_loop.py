"""Drives an executor step by step for whoever takes its news, and sleeps while there is nothing to do.

An exception that leaves `Executor.step` ends the loop for good, because what the executor holds can not be
relied upon any more; failures of the engine in a step do not leave it, they end the requests of that step.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Condition

from dsv4_trt.errors import EngineFault
from dsv4_trt.runtime.executor import Executor
from dsv4_trt.runtime.request import Request
from dsv4_trt.runtime.update import Update


class StepLoop:
    """The loop around one executor: `run` in one thread, everything else from any."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.fault: EngineFault | None = None  # what ended the loop before it was stopped
        self._changed = Condition()
        self._is_stopping = False

    def submit(self, request: Request) -> None:
        """Accept a request; raises what `Executor.submit` does, and `EngineFault` after the end."""
        self.check_running()
        self.executor.submit(request)
        self._wake()

    def cancel(self, request_id: str) -> None:
        """End a request at the next step."""
        self.executor.cancel(request_id)
        self._wake()

    def stop(self) -> None:
        """Let `run` end all requests as "cancelled" and return; again is no error."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()

    def check_running(self) -> None:
        """Raise `EngineFault` once no request is accepted any more."""
        if self.fault is not None:
            raise EngineFault(f"{self.fault}; no request is accepted any more") from self.fault
        if self._is_stopping:
            raise EngineFault("this LLM was shut down; make a new one to run more requests")

    def run(self, deliver: Callable[[list[Update]], None]) -> None:
        """Run steps until `stop`, or until one fails, which `fault` tells then.

        `deliver` gets the news of each step that brought some.
        """
        try:
            while self._wait_for_work():
                _tell(deliver, self.executor.step())
            self.executor.cancel_all()
            _tell(deliver, self.executor.step())
        except BaseException as error:
            self._fail(error, deliver)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def _wait_for_work(self) -> bool:
        """Sleep while there is nothing to do; False once the loop is to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or self.executor.has_work)
            return not self._is_stopping

    def _fail(self, error: BaseException, deliver: Callable[[list[Update]], None]) -> None:
        fault = EngineFault(
            f"the executor failed ({type(error).__name__}: {error}); the request has ended, make a "
            "new LLM to run it again"
        )
        with self._changed:
            self.fault = fault
        with suppress(Exception):  # it may be broken in any way
            _tell(deliver, self.executor.abort(fault))
        fault.__cause__ = error


def _tell(deliver: Callable[[list[Update]], None], updates: list[Update]) -> None:
    if updates:
        deliver(updates)
