"""Progress of long work on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.progress import TaskID


def is_shown() -> bool:
    """Whether stderr is a terminal; a program can be started without any."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def progress(
    description: str, total: int, *, unit: str = "bytes"
) -> Iterator[Callable[[int], None]]:
    """A bar on stderr over `total` units; yields a function that advances it.

    Nothing is shown when stderr is not a terminal.
    """
    if not is_shown():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    amount: tuple[ProgressColumn, ...] = (MofNCompleteColumn(), TextColumn(unit))
    if unit == "bytes":
        amount = (DownloadColumn(), TransferSpeedColumn())
    columns = (TextColumn("{task.description}"), BarColumn(), *amount, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.advance(task, done)


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """Yields a function that says which step begins: a line each, on a terminal with the time it takes."""
    if not is_shown():
        yield lambda what: click.echo(what, err=True)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as display:
        running: list[TaskID] = []

        def begin(what: str) -> None:
            finish()
            running.append(display.add_task(escape(what), total=1))

        def finish() -> None:
            if running:
                display.update(running.pop(), completed=1)

        yield begin
        finish()
