"""The engine as the server's coroutines see it: submit, cancel, metrics; restarted when it dies.

A request whose executor dies ends with an `EngineFault`. The process is started again, and until it is
ready requests are refused as `Unavailable`. After more than `MAX_RESTARTS` deaths within `RESTART_WINDOW`
seconds the client gives up and says so to `on_lost`, which ends the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Literal

from dsv4_trt.errors import Dsv4Error, EngineFault, Unavailable
from dsv4_trt.runtime.request import Request
from dsv4_trt.runtime.server.executor_link import ExecutorLink
from dsv4_trt.runtime.server.executor_messages import (
    Answered,
    AskMetrics,
    Broken,
    Cancel,
    EngineInfo,
    MetricsAnswer,
    News,
    Ready,
    Stop,
    Submit,
    unpack,
)
from dsv4_trt.runtime.server.executor_process import OpenExecutor
from dsv4_trt.runtime.server.token_stream import TokenStream
from dsv4_trt.runtime.update import Update

MAX_RESTARTS = 3
RESTART_WINDOW = 600.0
METRICS_SECONDS = 10.0  # how long the executor may take to tell its metrics
RETRY_SECONDS = 10  # what clients are told while the engine starts again

State = Literal["starting", "ready", "restarting", "stopped", "lost"]

log = logging.getLogger(__name__)


class EngineClient:
    """One engine, through however many lives of its process. All methods belong to one event loop."""

    def __init__(self, open_executor: OpenExecutor, options: object) -> None:
        self._open_executor, self._options = open_executor, options
        self.state: State = "starting"
        self.on_lost: Callable[[Exception], None] = lambda error: None
        self._numbers = count()
        self._streams: dict[str, TokenStream] = {}  # accepted or on their way, not ended
        self._answers: dict[str, asyncio.Future[None]] = {}
        self._metrics: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._deaths: list[float] = []
        self._reason: Exception | None = None  # what the process said before it ended
        self._link: ExecutorLink | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> EngineInfo:
        """Open the engine; raises what kept it from opening."""
        self._ready: asyncio.Future[EngineInfo] = asyncio.get_running_loop().create_future()
        self._link = ExecutorLink(self._open_executor, self._options, self._take)
        self.info = await self._ready
        return self.info

    @property
    def num_running(self) -> int:
        """Requests that have not ended."""
        return len(self._streams)

    def new_id(self) -> str:
        """A request id that no other request of this client has."""
        return str(next(self._numbers))

    async def submit(self, request: Request, timeout: float | None = None) -> TokenStream:
        """Run a request, for `timeout` seconds at most.

        Raises `RequestError`, `QueueFull` and `EngineFault` as the executor does, and `Unavailable` while
        there is no engine. A caller that is cancelled while it waits leaves no request behind.
        """
        self.check_ready()
        name = request.request_id
        stream = self._streams[name] = TokenStream(request, self._cancel)
        answer = self._answers[name] = asyncio.get_running_loop().create_future()
        self._send(Submit(request, timeout))
        try:
            await answer
        except asyncio.CancelledError:
            if not answer.cancelled() and answer.done():  # both at once: it is accepted
                self._cancel(name)
            raise
        except Dsv4Error:
            self._streams.pop(name, None)
            raise
        return stream

    async def metrics(self) -> dict[str, Any]:
        """`Metrics.snapshot()` of the executor; `Unavailable` while there is none, or it hangs."""
        self.check_ready()
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._metrics[number] = answer
        self._send(AskMetrics(number))
        try:
            return await asyncio.wait_for(answer, METRICS_SECONDS)
        except TimeoutError:
            self._metrics.pop(number, None)
            raise Unavailable(f"the engine did not answer in {METRICS_SECONDS:.0f} s") from None

    def check_ready(self) -> None:
        """Raise `Unavailable` unless requests can be taken."""
        if self.state != "ready":
            what = "is stopping" if self.state == "stopped" else "is starting again"
            raise Unavailable(f"the engine {what}; try again later", retry_after=RETRY_SECONDS)

    async def stop(self) -> None:
        """End all requests as "cancelled", and the process; again is no error."""
        self.state = "stopped"
        if self._link is not None:
            self._link.send(Stop())
            await self._link.join()

    def _send(self, message: object) -> None:
        assert self._link is not None
        self._link.send(message)

    def _cancel(self, request_id: str) -> None:
        self._send(Cancel(request_id))

    def _take(self, link: ExecutorLink, message: object) -> None:
        match message:
            case News(updates=packed):
                for update in unpack(packed):
                    self._deliver(update)
            case Answered(request_id=request_id, error=error):
                self._answer(request_id, error)
            case MetricsAnswer(number=number, snapshot=snapshot):
                if number in self._metrics:
                    _settle(self._metrics.pop(number), snapshot)
            case Ready(info=info):
                self.info = info
                self.state = "stopped" if self.state == "stopped" else "ready"
                _settle(self._ready, info)
            case Broken(error=error):
                self._reason = error
            case None:
                self.state = "restarting" if self.state == "ready" else self.state
                self._run(self._lose(link))

    def _deliver(self, update: Update) -> None:
        stream = self._streams[update.request_id]
        stream.deliver(update)
        if update.finished:
            del self._streams[update.request_id]

    def _answer(self, request_id: str, error: Dsv4Error | None) -> None:
        answer = self._answers.pop(request_id)
        if error is not None:
            self._streams.pop(request_id, None)
            _fail(answer, error)
        elif answer.cancelled():
            self._cancel(request_id)  # whoever asked is gone
        else:
            _settle(answer, None)

    async def _lose(self, link: ExecutorLink) -> None:
        """The process is gone: end what it ran, and start it again if it was not meant to end."""
        code = await link.join()
        reason, self._reason = self._reason, None
        fault = _death(reason, code)
        self._end_all(fault)
        if not self._ready.done():
            self._ready.set_exception(reason or fault)
        elif self.state != "stopped":
            log.error("the executor's process ended", extra={"error": str(reason or fault)})
            await self._restart(reason or fault)

    async def _restart(self, reason: Exception) -> None:
        """Start it again, unless it dies too often; a start that fails is a death as well."""
        while self.state != "stopped":
            now = time.monotonic()
            self._deaths = [t for t in self._deaths if t > now - RESTART_WINDOW] + [now]
            if len(self._deaths) > MAX_RESTARTS:
                self.state = "lost"
                self.on_lost(reason)
                return
            try:
                await self.start()
                return
            except Exception as error:
                log.error("the engine did not start again", extra={"error": str(error)})
                reason = error

    def _end_all(self, fault: EngineFault) -> None:
        streams, self._streams = self._streams, {}
        answers: dict[str, asyncio.Future[Any]]
        answers, self._answers = self._answers, {}
        metrics: dict[int, asyncio.Future[Any]]
        metrics, self._metrics = self._metrics, {}
        waiting: list[asyncio.Future[Any]] = [*answers.values(), *metrics.values()]
        for future in waiting:
            _fail(future, fault)
        for name, stream in streams.items():
            stream.deliver(
                Update(request_id=name, index=0, finish_reason="error", error=fault, finished=True)
            )

    def _run(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._tasks.discard)


def _death(reason: Exception | None, code: int | None) -> EngineFault:
    how = f"exit code {code}" if code is None or code >= 0 else f"signal {-code}"
    what = "failed" if reason is not None else f"ended unexpectedly ({how})"
    fault = EngineFault(f"the executor's process {what}; the request has ended, send it again")
    fault.__cause__ = reason
    return fault


def _settle(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # it is no news if whoever waited is gone
