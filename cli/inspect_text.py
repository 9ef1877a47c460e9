"""The report of `dsv4-trt inspect` as tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dsv4_trt.cli.engine_text import every_layer_table, print_engine
from dsv4_trt.cli.inspect_parts import Report
from dsv4_trt.cli.tables import cell, plain_console, rows_table, table_of
from dsv4_trt.graph import Graph


def print_report(report: Report) -> None:
    """Print what the report holds."""
    console = plain_console()
    console.print(f"{report['kind']} {escape(report['path'])}", soft_wrap=True)
    console.print(_pairs("config", _flat(report["model"])))
    for part in ("storage", "mapping", "build", "kv"):
        if part in report:
            console.print(_pairs(part, _flat(report[part])))
    console.print(rows_table("layers", report["layers"]))
    console.print(_parameters(report["parameters"]))
    for title, part in (("tensors by type", "dtypes"), ("files", "files"), ("tensors", "tensors")):
        if report.get(part):
            console.print(rows_table(title, report[part]))
    for path in report.get("missing_weights", ()):
        console.print(f"weights not found: {escape(path)}", soft_wrap=True)
    if report.get("dummy_weights"):
        console.print("no weights: an engine makes them up on its GPU (build --dummy-weights)")
    if "plans" in report:
        _print_plans(console, report["plans"])
    for name, plan in report.get("plan_layers", {}).items():
        console.print(every_layer_table(f"layers of {name}", plan["layers"]))
    for precision, parts in report.get("graphs", {}).items():
        for part, data in parts.items():
            console.print(_graph(f"graph {part}, {precision}", data))
    if "log" in report:
        console.print(report["log"], markup=False, soft_wrap=True)


def _print_plans(console: Console, plans: Report) -> None:
    print_engine(console, plans)
    for file in plans["plan_files"]:
        if file["state"] != "as built":
            console.print(f"plan {file['file']} {file['state']}; build the bundle again")
    console.print(f"log: {escape(plans['log_file'])}", soft_wrap=True)


def _flat(data: Report, prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif key != "compress_ratios":  # shown as the layers
            yield prefix + key, value


def _pairs(title: str, pairs: Iterable[tuple[str, Any]]) -> Table:
    table = table_of(title, "key", "value")
    for key, value in pairs:
        table.add_row(key, cell(value))
    return table


def _parameters(counts: Report) -> Table:
    table = table_of("parameters", "of", "num_parameters", "value")
    for name, count in counts.items():
        table.add_row(name, f"{count:,}", f"{count / 1e9:.2f}e9")
    return table


def _graph(title: str, data: Report) -> Table:
    graph = Graph.from_json(data)
    table = table_of(title, "node", "op", "inputs", "outputs", "attrs")
    for node in graph.nodes:
        outputs = {}
        for key, name in node.outputs.items():
            value = graph.values[name]
            shape = ", ".join(str(dim) for dim in value.shape)
            outputs[key] = f"{name} {value.dtype}[{shape}]"
        cells = (node.name, node.op, _lines(node.inputs), _lines(outputs), _lines(node.attrs))
        table.add_row(*cells, end_section=True)
    return table


def _lines(items: dict[str, Any]) -> str:
    return escape("\n".join(f"{key}={value}" for key, value in items.items()))
