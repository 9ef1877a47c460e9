"""One life of the executor's process, seen from the server: start, a thread that sends, one that receives.

What is sent waits in a queue: a process that is slow to take it, or hangs, does not hold up the event loop.

The end of the pipe is how a death is noticed, whatever killed the process; it comes at once.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections import deque
from collections.abc import Callable
from multiprocessing import get_context
from queue import SimpleQueue
from threading import Thread

from dsv4_trt.runtime.server.executor_process import OpenExecutor, run_executor

log = logging.getLogger(__name__)

KILL_SECONDS = 5.0  # how long a process that was told to end may take, once its requests have ended


class ExecutorLink:
    """A running process. `take` gets each message on the event loop, and None once it is gone."""

    def __init__(
        self,
        open_executor: OpenExecutor,
        options: object,
        take: Callable[[ExecutorLink, object], None],
    ) -> None:
        context = get_context("spawn")  # a fork would carry the server's threads and sockets along
        self._pipe, theirs = context.Pipe()
        self._take = take
        self._arrived: deque[object] = deque()
        self._loop = asyncio.get_running_loop()
        self.process = context.Process(
            target=run_executor,
            args=(theirs, open_executor, options),
            name="dsv4-trt executor",
            daemon=True,
        )
        self.process.start()
        theirs.close()  # else the pipe would not end with the process
        self._outgoing: SimpleQueue[object] = SimpleQueue()  # None = no more
        self._sender = Thread(target=self._send_all, name="executor sender", daemon=True)
        self._sender.start()
        Thread(target=self._receive, name="executor link", daemon=True).start()

    def send(self, message: object) -> None:
        """Send a message, soon; what a process that is gone does not get, nobody misses."""
        self._outgoing.put(message)

    async def join(self) -> int | None:
        """Wait for the end of the process, kill it if it takes too long; its exit code."""
        await asyncio.to_thread(self.process.join, KILL_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            await asyncio.to_thread(self.process.join)
        return self.process.exitcode

    def _send_all(self) -> None:
        while (message := self._outgoing.get()) is not None:
            try:
                self._pipe.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
            except OSError:
                return  # `take` is told by the receiving thread

    def _receive(self) -> None:
        while True:
            try:
                message = pickle.loads(self._pipe.recv_bytes())
            except (EOFError, OSError):
                message = None
            except Exception:  # nothing of it can be relied on any more; it ends with the pipe
                log.exception("what the executor's process sent can not be read")
                message = None
            self._arrived.append(message)
            try:
                if len(self._arrived) == 1:  # else a hand-over is under way that takes this one too
                    self._loop.call_soon_threadsafe(self._hand_over)
            except RuntimeError:  # the event loop is closed
                message = None
            if message is None:
                self._outgoing.put(None)
                self._sender.join()  # else it could write to whatever gets the pipe's number next
                self._pipe.close()
                return

    def _hand_over(self) -> None:
        while self._arrived:
            try:
                self._take(self, self._arrived[0])
            except Exception:  # one message must not keep the others from their requests
                log.exception("a message of the executor's process could not be taken")
            self._arrived.popleft()  # only now: a message that comes meanwhile needs no wake-up
