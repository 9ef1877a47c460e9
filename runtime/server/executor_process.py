"""The executor's process: opens the engine, runs its steps, and speaks with the server over a pipe.

It ends when it is told to, when its executor fails, and when the server is gone, which is the end of the
pipe. Signals are the server's to handle: one from a terminal reaches both.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from threading import BoundedSemaphore, Lock, Thread
from typing import Any

from dsv4_trt.errors import Dsv4Error, EngineFault, QueueFull
from dsv4_trt.runtime.executor import Executor
from dsv4_trt.runtime.request import Request
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
    pack,
)
from dsv4_trt.runtime.step_loop import StepLoop
from dsv4_trt.runtime.update import Update

GRAMMAR_THREADS = 2  # grammars compile beside the steps, and beside requests without one
MAX_COMPILING = 1024  # requests whose grammars wait to be compiled
SWITCH_SECONDS = 0.0005  # how long a thread may keep a waiting one from running Python


@dataclass(frozen=True, slots=True)
class Opened:
    """An executor to run, and what to tell of it."""

    executor: Executor
    info: EngineInfo


OpenExecutor = Callable[[Any], Opened]


def run_executor(pipe: Connection, open_executor: OpenExecutor, options: object) -> None:
    """The process's whole life; `open_executor(options)` may raise any of our errors."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH_SECONDS)
    process = ExecutorProcess(pipe)
    Thread(target=process.receive, name="receive", daemon=True).start()
    try:
        opened = open_executor(options)
    except Exception as error:
        process.send(Broken(_portable(error)))
        return
    process.run(opened)


class ExecutorProcess:
    """The pipe, the loop over steps in this thread, and a thread that takes what the server sends."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._sending = Lock()
        self._compiling = ThreadPoolExecutor(GRAMMAR_THREADS, "grammar")
        self._places = BoundedSemaphore(MAX_COMPILING)
        self._loop: StepLoop | None = None  # None until the engine is open

    def send(self, message: object) -> None:
        """Send from any thread."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        try:
            with self._sending:
                self._pipe.send_bytes(data)
        except OSError:
            os._exit(0)  # nobody is left to tell; steps and compilers are not waited for

    def run(self, opened: Opened) -> None:
        """Serve until the end; a fault of the executor is told last."""
        self._loop = loop = StepLoop(opened.executor)
        self.send(Ready(opened.info))
        self._compiling.submit(_warm_up, opened.executor)
        loop.run(self._tell)
        if loop.fault is not None:
            self.send(Broken(_portable(loop.fault)))
        opened.executor.close()
        os._exit(0)  # a grammar that is still being compiled is not waited for

    def _tell(self, updates: list[Update]) -> None:
        self.send(News(pack(_portable_update(update) for update in updates)))

    def receive(self) -> None:
        """Take what the server sends, until it is gone."""
        while True:
            try:
                message = pickle.loads(self._pipe.recv_bytes())
            except (EOFError, OSError):
                os._exit(0)  # the server is gone
            if self._loop is not None:
                self._take(self._loop, message)
            elif isinstance(message, Stop):
                os._exit(0)  # while the engine is being opened; nothing is written there

    def _take(self, loop: StepLoop, message: object) -> None:
        match message:
            case Submit(request=request, timeout=timeout):
                if timeout is not None:
                    request = replace(request, deadline=loop.executor.clock() + timeout)
                if request.params.guided_decoding is None:
                    self._submit(loop, request)
                elif self._places.acquire(blocking=False):
                    self._compiling.submit(self._submit_guided, loop, request)
                else:
                    error = QueueFull("too many grammars wait to be compiled; try again later")
                    self.send(Answered(request.request_id, error))
            case Cancel(request_id=request_id):
                loop.cancel(request_id)
            case AskMetrics(number=number):
                self.send(MetricsAnswer(number, loop.executor.metrics.snapshot()))
            case Stop():
                loop.stop()

    def _submit_guided(self, loop: StepLoop, request: Request) -> None:
        try:
            self._submit(loop, request)
        finally:
            self._places.release()

    def _submit(self, loop: StepLoop, request: Request) -> None:
        try:
            loop.submit(request)
        except Exception as error:
            self.send(Answered(request.request_id, _portable(error)))
        else:
            self.send(Answered(request.request_id, None))


def _warm_up(executor: Executor) -> None:
    """Load what grammars need, seconds of it, before the first request that has one."""
    if executor.grammars is not None:
        with suppress(Dsv4Error):  # the request tells what is missing
            executor.grammars.warm_up()


def _portable_update(update: Update) -> Update:
    return update if update.error is None else replace(update, error=_portable(update.error))


def _portable(error: Exception) -> Dsv4Error:
    """An error that can be pickled: ours as it is, without its cause; another one as a fault."""
    if isinstance(error, Dsv4Error):
        return error
    return EngineFault(f"{type(error).__name__}: {error}")
