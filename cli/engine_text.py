"""Reports of plans, built or only looked at, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from dsv4_trt.cli.engine_report import Report
from dsv4_trt.cli.sizes import gib
from dsv4_trt.cli.tables import table_of

if TYPE_CHECKING:
    from rich.console import Console

    from dsv4_trt.graph import Attr

NOT_RUNNABLE = (
    "Python twins instead of the plugin library: the plans show that the network builds, they can be "
    "inspected and can not run"
)


def how_to_run(target: str | None) -> str:
    """What makes plans that run out of those that do not."""
    build = "dsv4-trt plugins build" + (f" --arch {target}" if target else "")
    return (
        "for plans that run, compile the library with TensorRT's headers and build again: "
        f"{build} --tensorrt_include DIR"
    )


def print_engine(console: Console, report: Report) -> None:
    """Print a report of `engine_report`."""
    graphs = report["graphs"]
    built = f"{report['engine']} {report['tensorrt_version']}"
    console.print(f"plans of {built} for {report['target']}", soft_wrap=True)
    if report["is_runnable"]:
        console.print(f"plugins: the library, with headers of TensorRT {report['plugins']}")
    else:
        console.print(f"plugins: {NOT_RUNNABLE}; {how_to_run(report['target'])}", soft_wrap=True)
    console.print(_plans(graphs))
    console.print(layers_table(graphs))
    profiles = {name: graph["profiles"] for name, graph in graphs.items()}
    for title, found in _distinct(profiles).items():
        console.print(profiles_table(f"profiles of {title}: least, usual, most", found))


def layers_table(graphs: Mapping[str, Report]) -> Table:
    """How many plugins of each op and layers of TensorRT's own, a column for each graph."""
    sections = [
        {name: graph[part] for name, graph in graphs.items()}
        for part in ("plugins", "native_layers")
    ]
    return counts_table("layers of plans", "op or kind", *sections)


def counts_table(title: str, what: str, *sections: Mapping[str, Mapping[str, int]]) -> Table:
    """How many of each, by graph and name, and the total."""
    table = _table_by_graph(title, what, sections[0])
    for counts in sections:
        for name in dict.fromkeys(name for found in counts.values() for name in found):
            table.add_row(name, *(f"{found.get(name, 0):,}" for found in counts.values()))
        table.add_section()
    totals = (sum(sum(s[graph].values()) for s in sections) for graph in sections[0])
    table.add_row("all", *(f"{total:,}" for total in totals))
    return table


def profiles_table(title: str, profiles: Mapping[str, Mapping[str, list[int]]]) -> Table:
    """The range of each run-time size, a column for each profile."""
    table = table_of(title, "size", *profiles)
    for size in next(iter(profiles.values()), {}):
        cells = (", ".join(f"{n:,}" for n in sizes[size]) for sizes in profiles.values())
        table.add_row(size, *cells)
    return table


def every_layer_table(title: str, layers: list[Report]) -> Table:
    """Layers of a report of `layers_report`; "=" after an output names the input that it overwrites."""
    table = table_of(title, "layer", "plugin or kind", "inputs", "outputs", "attrs", "stream")
    for layer in layers:
        aliases = layer["aliases"]
        outputs = [f"{n} = {aliases[n]}" if n in aliases else n for n in layer["outputs"]]
        attrs = [f"{name}={_short(value)}" for name, value in layer["attrs"].items()]
        streams = [f"{p}={'fused' if s is None else s}" for p, s in layer["streams"].items()]
        lists = (layer["inputs"], outputs, attrs, streams)
        cells = (escape("\n".join(lines)) for lines in lists)
        table.add_row(
            escape(layer["name"]), layer["op"] or layer["kind"].lower(), *cells, end_section=True
        )
    return table


def _short(value: Attr) -> str:
    """An attribute; numbers of plugins are fp32, of which 1e-06 is 9.999999974752427e-07 in full."""
    import numpy as np

    return str(np.float32(value) if isinstance(value, float) else value)


def _plans(graphs: Mapping[str, Report]) -> Table:
    table = _table_by_graph("plans", "what", graphs)
    for what, key in _COUNTS.items():
        table.add_row(what, *(f"{graph[key]:,}" for graph in graphs.values()))
    table.add_row("seconds", *(f"{graph['seconds']:.1f}" for graph in graphs.values()))
    table.add_row("memory it took", *(gib(graph["peak_bytes"]) for graph in graphs.values()))
    code = ("\n".join(graph["device_code"]) or "none" for graph in graphs.values())
    table.add_row("device code", *(escape(lines) for lines in code))
    return table


_COUNTS = {
    "bytes": "num_bytes",
    "inputs": "num_inputs",
    "outputs": "num_outputs",
    "layers": "num_layers",
    "in-place outputs": "num_aliases",
    "streams": "num_streams",
}


def _table_by_graph(title: str, what: str, graphs: Iterable[str]) -> Table:
    table = table_of(title, what)
    for graph in graphs:
        table.add_column(graph, justify="right", overflow="fold")
    return table


def _distinct(profiles: Mapping[str, Report]) -> dict[str, Report]:
    """Profiles by the graphs that have them: graphs of one build have the same."""
    found: list[tuple[list[str], Report]] = []
    for name, each in profiles.items():
        same = next((names for names, other in found if other == each), None)
        if same is None:
            found.append(([name], each))
        else:
            same.append(name)
    return {" and ".join(names): each for names, each in found}
