"""Runs an executor in a thread of its own and brings its news to the handles of the requests.

Whatever happens to the thread, every handle ends: with what the executor says, as "cancelled" when the
thread is stopped, or with the error that ended it.
"""

from __future__ import annotations

from threading import Lock, Thread, current_thread

from dsv4_trt.errors import Dsv4Error
from dsv4_trt.runtime.executor import Executor
from dsv4_trt.runtime.request import Request
from dsv4_trt.runtime.request_output import RequestOutput
from dsv4_trt.runtime.step_loop import StepLoop
from dsv4_trt.runtime.update import Update


class ExecutorThread:
    """A `StepLoop` in a thread, and the handles that it fills."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._loop = StepLoop(executor)
        self._lock = Lock()
        self._handles: dict[str, RequestOutput] = {}
        self._thread = Thread(target=self._run, name="dsv4-trt executor", daemon=True)
        self._thread.start()

    def submit(self, request: Request, handle: RequestOutput) -> None:
        """Accept a request; raises what `StepLoop.submit` does."""
        with self._lock:
            self._loop.check_running()
            self._handles[request.request_id] = handle
        try:
            self._loop.submit(request)
        except BaseException:
            with self._lock:
                self._handles.pop(request.request_id, None)
            raise

    def cancel(self, request_id: str) -> None:
        """End a request at the next step."""
        self._loop.cancel(request_id)

    def stop(self, timeout: float | None = None) -> None:
        """End all requests as "cancelled" and the thread once its step is done; again is no error."""
        self._loop.stop()
        if self._thread is not current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        self._loop.run(self._deliver)
        self._end_rest(self._loop.fault)

    def _deliver(self, updates: list[Update]) -> None:
        news: dict[str, list[Update]] = {}
        for update in updates:
            news.setdefault(update.request_id, []).append(update)
        for request_id, of_request in news.items():
            with self._lock:
                handle = self._handles[request_id]
                if any(update.finished for update in of_request):
                    del self._handles[request_id]
            handle.deliver(of_request)

    def _end_rest(self, error: Dsv4Error | None) -> None:
        """End the handles of which the executor does not tell any more."""
        with self._lock:
            handles, self._handles = list(self._handles.values()), {}
        for handle in handles:
            handle.end("cancelled" if error is None else "error", error)
