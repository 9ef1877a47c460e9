"""`dsv4-trt inspect`: what a checkpoint or bundle holds."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dsv4_trt.cli.options import PATH, json_option, option
from dsv4_trt.errors import ConfigError


@click.command()
@click.argument("path", type=PATH)
@option("--tensors", is_flag=True, help="List every tensor: type, shape, bytes, file.")
@option(
    "--graph",
    is_flag=True,
    help="List every node of a bundle's graphs; wide: pipe it to `less -S`.",
)
@option(
    "--precision",
    type=click.Choice(["serving", "exact", "all"]),
    default="serving",
    help="Which graphs --graph lists.",
)
@option(
    "--layers",
    is_flag=True,
    help="List every layer of a bundle's TensorRT plans, with attributes, in-place outputs and streams.",
)
@option("--log", is_flag=True, help="Print what TensorRT said while it built the plans.")
@json_option
def command(
    path: Path,
    tensors: bool,
    graph: bool,
    precision: str,
    layers: bool,
    log: bool,
    as_json: bool,
) -> None:
    """Show what an official checkpoint, a rank checkpoint or an engine bundle holds.

    \b
    Example:
      dsv4-trt inspect ENGINE --graph
      dsv4-trt inspect ENGINE --layers
    """
    from dsv4_trt.cli.inspect_plans import read_log
    from dsv4_trt.cli.inspect_report import inspect
    from dsv4_trt.cli.inspect_text import print_report

    report = inspect(path)
    if graph and "graphs" not in report:
        raise ConfigError(
            f"{path} is of kind '{report['kind']}' and has no graph; expected an engine bundle, "
            "the output of `dsv4-trt build`"
        )
    if (layers or log) and "plans" not in report:
        raise ConfigError(
            f"{path} is of kind '{report['kind']}' and has no TensorRT plans; expected an engine bundle "
            "of `dsv4-trt build --engine tensorrt` or tensorrt-rtx"
        )
    if not layers:
        report.pop("plan_layers", None)
    if log:
        report["log"] = read_log(path)
    if not tensors:
        del report["tensors"]
    graphs = report.pop("graphs", {})
    if graph:
        report["graphs"] = {
            name: parts for name, parts in graphs.items() if precision in (name, "all")
        }
    if as_json:
        click.echo(json.dumps(report))
    else:
        print_report(report)
