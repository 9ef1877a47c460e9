"""`dsv4-trt doctor`: what this machine has and what that makes possible."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from dsv4_trt.cli.options import json_option

if TYPE_CHECKING:
    from rich.table import Table

    from dsv4_trt.cli.doctor_probes import Findings


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
    from dsv4_trt.cli.tables import plain_console, rows_table

    console = plain_console()
    console.print(_pairs("versions", findings["versions"]))
    console.print(_pairs("machine", findings["machine"]))
    console.print(_pairs("torch", findings["torch"]))
    console.print(_pairs("nvcc", findings["nvcc"] or {"path": "not found"}))
    console.print(_pairs("CUDA kernels", findings["kernels"]))
    console.print(_table("TensorRT plugins", findings["plugins"], {"library": "none is built"}))
    console.print(_table("TensorRT", findings["tensorrt"], {}))
    console.print(_table("GPUs", findings["gpus"], {"nvidia-smi": "no GPU found"}))
    console.print(rows_table("optional packages", findings["optional"]))
    console.print(rows_table("possible here", findings["possible"]))


def _table(title: str, found: Findings | list[Findings], if_none: Findings) -> Table:
    """Rows that a probe found, or what it says of an error."""
    from dsv4_trt.cli.tables import rows_table

    return (
        rows_table(title, found)
        if isinstance(found, list) and found
        else _pairs(title, found if isinstance(found, dict) else if_none)
    )


def _pairs(title: str, data: Findings) -> Table:
    from dsv4_trt.cli.tables import rows_table

    return rows_table(title, [{"what": key, "found": value} for key, value in data.items()])
