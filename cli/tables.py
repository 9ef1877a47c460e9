"""Tables of findings on the terminal; wide enough to be searched where the output is none."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

PLAIN_WIDTH = 200  # columns when the output is not a terminal


def plain_console() -> Console:
    """Standard output, without highlighting."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


def table_of(title: str, *columns: str) -> Table:
    """An empty table; counts and values are set to the right."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        number = column.startswith("num_") or column == "value"
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    return table


def rows_table(title: str, rows: list[dict[str, Any]]) -> Table:
    """A table of dictionaries with the same keys."""
    table = table_of(title, *rows[0])
    for row in rows:
        table.add_row(*(cell(value) for value in row.values()))
    return table


def cell(value: Any) -> str:
    """One value as text that rich prints as it is."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else escape(str(value))
