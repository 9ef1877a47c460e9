"""Sends requests on a schedule: so many at the same time, or so many a second, or both.

Knows nothing of HTTP or engines: a `Sender` sends one request at a time and fills its record.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.bench.arrivals import arrival_times
from dsv4_trt.runtime.bench.ask import Ask
from dsv4_trt.runtime.bench.record import CANCELLED, Record


class Sender(Protocol):
    """Sends requests, one after another."""

    async def send(self, ask: Ask, record: Record) -> None:
        """Send one and fill its record, failures included; `ended` stays None when this is cancelled."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The shape of a load: closed with `concurrency` alone, open with a rate.

    With both, requests arrive at the rate and wait in the client while `concurrency` are running.
    `batches` makes a closed load wait for all that began together before the next begin.
    """

    concurrency: int | None = None  # None = no limit, for a rate
    request_rate: float | None = None  # requests a second
    burstiness: float = 1.0
    num_requests: int | None = None  # None = until the duration is over
    duration: float | None = None  # seconds in which requests may begin
    seed: int = 0
    batches: bool = False

    def check(self) -> None:
        """Raise `ConfigError` for a load without shape or end, or with illegal numbers."""
        if self.concurrency is None and self.request_rate is None:
            raise ConfigError("a load has neither concurrency nor request_rate; give one, or both")
        if self.num_requests is None and self.duration is None:
            raise ConfigError("a load has neither num_requests nor duration; give one, or both")
        for name in ("concurrency", "num_requests"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; expected at least 1")
        if self.duration is not None and not 0 < self.duration < 1e9:
            raise ConfigError(f"duration is {self.duration}; expected seconds above 0")
        if self.request_rate == inf and self.num_requests is None:
            raise ConfigError("at request_rate inf all requests begin at once; give num_requests")
        if self.request_rate is not None:
            arrival_times(self.request_rate, self.burstiness, self.seed)


@dataclass(slots=True, eq=False)
class Run:
    """One run of a load: what it has brought so far, and may be read while it goes on."""

    load: Load
    asks: Sequence[Ask]  # taken in order, and again from the first
    new_sender: Callable[[], Sender]
    records: list[Record] = field(default_factory=list)
    began: float = 0.0
    seconds: float = 0.0  # from the start to the end of the last request
    cpu_seconds: float = 0.0  # of this process, all its threads
    num_running: int = 0
    num_ended: int = 0
    num_failed: int = 0
    num_tokens: int = 0  # streamed by the requests that have ended
    _idle: list[Sender] = field(default_factory=list)
    _places: asyncio.Semaphore | None = None

    async def go(self) -> None:
        """Run to the end. Cancelled, it ends the requests under way, and keeps what there is."""
        self.load.check()
        cpu, self.began = time.process_time(), time.perf_counter()
        try:
            await (self._closed() if self.load.request_rate is None else self._open())
        finally:
            self.seconds = time.perf_counter() - self.began
            self.cpu_seconds = time.process_time() - cpu
            for record in self.records:
                if record.ended is None:
                    record.fail(CANCELLED, "")
            for sender in self._idle:
                await sender.close()

    async def _closed(self) -> None:
        assert self.load.concurrency is not None
        if self.load.batches:
            return await self._in_batches(self.load.concurrency)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.load.concurrency, self.load.num_requests or 10**9)):
                group.create_task(self._one_after_another())

    async def _one_after_another(self) -> None:
        while (record := self._next()) is not None:
            await self._send(record)

    async def _in_batches(self, size: int) -> None:
        while (first := self._next()) is not None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send(first))
                for _ in range(size - 1):
                    if (record := self._next()) is not None:
                        group.create_task(self._send(record))

    async def _open(self) -> None:
        load = self.load
        assert load.request_rate is not None
        if load.concurrency is not None:
            self._places = asyncio.Semaphore(load.concurrency)
        async with asyncio.TaskGroup() as group:
            for due in arrival_times(load.request_rate, load.burstiness, load.seed):
                if (record := self._next(self.began + due)) is None:
                    break
                # also where it is late: tasks that were made have to begin
                await asyncio.sleep(record.scheduled - time.perf_counter())
                group.create_task(self._send(record))

    def _next(self, due: float | None = None) -> Record | None:
        """The next request, due now unless said otherwise; None when the load is at its end."""
        due = time.perf_counter() if due is None else due
        load, index = self.load, len(self.records)
        if load.num_requests is not None and index >= load.num_requests:
            return None
        if load.duration is not None and due - self.began >= load.duration:
            return None
        self.records.append(Record(index=index, scheduled=due))
        return self.records[-1]

    async def _send(self, record: Record) -> None:
        if self._places is None:
            return await self._send_now(record)
        async with self._places:
            await self._send_now(record)

    async def _send_now(self, record: Record) -> None:
        sender = self._idle.pop() if self._idle else self.new_sender()
        self.num_running += 1
        try:
            await sender.send(self.asks[record.index % len(self.asks)], record)
        finally:
            self._idle.append(sender)
            self.num_running -= 1
            self.num_ended += 1
            self.num_failed += record.error is not None
            self.num_tokens += record.streamed
