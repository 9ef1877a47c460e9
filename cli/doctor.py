"""`dsv4-trt doctor`: what this machine has and what that makes possible."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from dsv4_trt.cli.options import json_option

if TYPE_CHECKING:
    from rich.table import Table

    from dsv4_trt.cli.doctor_probes import Findings

PLAIN_WIDTH = 160  # columns when the output is not a terminal


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Print versions, GPUs, nvcc and optional packages, and what they make possible.

    \b
    Example:
      dsv4-trt doctor --json
    """
    from dsv4_trt.cli.doctor_probes import probe

    findings = probe()
    if as_json:
        click.echo(json.dumps(findings))
    else:
        _print(findings)


def _print(findings: Findings) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PLAIN_WIDTH)
    console.print(_pairs("versions", findings["versions"]))
    console.print(_pairs("machine", findings["machine"]))
    console.print(_pairs("torch", findings["torch"]))
    console.print(_pairs("nvcc", findings["nvcc"] or {"path": "not found"}))
    gpus = findings["gpus"]
    if isinstance(gpus, dict) or not gpus:
        console.print(_pairs("GPUs", gpus or {"nvidia-smi": "no GPU found"}))
    else:
        console.print(_rows("GPUs", gpus))
    console.print(_rows("optional packages", findings["optional"]))
    console.print(_rows("possible here", findings["possible"]))


def _pairs(title: str, data: Findings) -> Table:
    return _rows(title, [{"what": key, "found": value} for key, value in data.items()])


def _rows(title: str, rows: list[Findings]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(_cell(value)) for value in row.values()))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
