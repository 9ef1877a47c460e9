"""Runs an executor in a thread of its own and brings its news to the handles of the requests.

Whatever happens to the thread, every handle ends: with what the executor says, as "cancelled" when the
thread is stopped, or with the error that ended it. An exception that leaves `Executor.step` ends it for
good, because what the executor holds can not be relied upon any more; failures of the engine in a step do
not leave it, they end the requests of that step.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Condition, Thread, current_thread

from dsv4_trt.errors import Dsv4Error, EngineFault
from dsv4_trt.runtime.executor import Executor
from dsv4_trt.runtime.request import Request
from dsv4_trt.runtime.request_output import RequestOutput
from dsv4_trt.runtime.update import Update


class ExecutorThread:
    """The loop around one executor; sleeps while there is nothing to do."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._changed = Condition()
        self._handles: dict[str, RequestOutput] = {}
        self._is_stopping = False
        self._fault: EngineFault | None = None
        self._thread = Thread(target=self._run, name="dsv4-trt executor", daemon=True)
        self._thread.start()

    def submit(self, request: Request, handle: RequestOutput) -> None:
        """Accept a request; raises what `Executor.submit` does, and `EngineFault` after the end."""
        with self._changed:
            self._check_running()
            self._handles[request.request_id] = handle
        try:
            self.executor.submit(request)
        except BaseException:
            with self._changed:
                self._handles.pop(request.request_id, None)
            raise
        self._wake()

    def cancel(self, request_id: str) -> None:
        """End a request at the next step."""
        self.executor.cancel(request_id)
        self._wake()

    def stop(self, timeout: float | None = None) -> None:
        """End all requests as "cancelled" and the thread once its step is done; again is no error."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        if self._thread is not current_thread():
            self._thread.join(timeout)

    def _check_running(self) -> None:
        if self._fault is not None:
            raise EngineFault(f"{self._fault}; no request is accepted any more") from self._fault
        if self._is_stopping:
            raise EngineFault("this LLM was shut down; make a new one to run more requests")

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._deliver(self.executor.step())
            self._stop_all()
        except BaseException as error:
            self._fail_all(error)

    def _wait_for_work(self) -> bool:
        """Sleep while there is nothing to do; False once the thread is to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or self.executor.has_work)
            return not self._is_stopping

    def _deliver(self, updates: list[Update]) -> None:
        news: dict[str, list[Update]] = {}
        for update in updates:
            news.setdefault(update.request_id, []).append(update)
        for request_id, of_request in news.items():
            with self._changed:
                handle = self._handles[request_id]
                if any(update.finished for update in of_request):
                    del self._handles[request_id]
            handle.deliver(of_request)

    def _stop_all(self) -> None:
        self.executor.cancel_all()
        self._deliver(self.executor.step())
        self._end_rest(None)

    def _fail_all(self, error: BaseException) -> None:
        fault = EngineFault(
            f"the executor failed ({type(error).__name__}: {error}); the request has ended, make a "
            "new LLM to run it again"
        )
        with self._changed:
            self._fault = fault
        with suppress(Exception):  # it may be broken in any way; the handles are ended below
            self._deliver(self.executor.abort(fault))
        fault.__cause__ = error
        self._end_rest(fault)

    def _end_rest(self, error: Dsv4Error | None) -> None:
        """End the handles of which the executor does not tell any more."""
        with self._changed:
            handles, self._handles = list(self._handles.values()), {}
        for handle in handles:
            handle.end("cancelled" if error is None else "error", error)
