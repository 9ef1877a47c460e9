"""Runs a load to its end or to Ctrl-C, with progress on stderr."""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dsv4_trt.cli.progress import is_shown

if TYPE_CHECKING:
    from dsv4_trt.runtime.bench.load import Run

REFRESH = 0.5  # seconds
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_load(run: Run, description: str) -> int | None:
    """Run it; the signal that ended it early, whose requests under way count as cancelled, or None.

    A second Ctrl-C ends the program at once.
    """
    with _progress(run, description) as show, _short_collections():
        return asyncio.run(_watch(run, show))


async def _watch(run: Run, show: Callable[[], None]) -> int | None:
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(run.go())
    stopped: list[int] = []

    def stop(number: int) -> None:
        loop.remove_signal_handler(number)
        stopped.append(number)
        task.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=REFRESH)
            show()
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
    if not task.cancelled():
        task.result()
    return stopped[0] if stopped else None


@contextmanager
def _short_collections() -> Iterator[None]:
    """What is there already, such as all prompts, is not looked through in the middle of a load."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _progress(run: Run, description: str) -> Iterator[Callable[[], None]]:
    """A line that goes with the requests, or with the seconds where only a duration is given."""
    if not is_shown():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    load = run.load
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=load.num_requests or load.duration, state="")

        def show() -> None:
            seconds = time.perf_counter() - run.began
            bar.update(
                task,
                completed=run.num_ended if load.num_requests else seconds,
                state=f"{run.num_ended} done, {run.num_running} running, {run.num_failed} failed, "
                f"{run.num_tokens / seconds:.0f} tok/s",
            )

        yield show
