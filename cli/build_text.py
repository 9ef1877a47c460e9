"""The report of `dsv4-trt build` as text."""

from __future__ import annotations

from shlex import quote

from rich.markup import escape

from dsv4_trt.cli.engine_report import Report
from dsv4_trt.cli.engine_text import (
    NOT_RUNNABLE,
    counts_table,
    how_to_run,
    layers_table,
    print_engine,
    profiles_table,
)
from dsv4_trt.cli.tables import plain_console
from dsv4_trt.contract import TOKENIZER_FILES
from dsv4_trt.targets import TENSORRT


def print_build(report: Report) -> None:
    """Print what was built, and which command comes next."""
    console, files, output_dir = plain_console(), report["files"], report["output_dir"]
    lines = [f"built {output_dir} for {report['world_size']} rank(s)"]
    lines += [f"  {name:24} {size:>12,} B" for name, size in files.items()]
    console.print(escape("\n".join(lines)), soft_wrap=True)
    plans = report.get("plans")
    if plans is not None:
        print_engine(console, plans)
    quoted = quote(output_dir)
    place, following = "", f"inspect {quoted} --layers"
    # a GPU runs one rank in this version
    if plans is None or (plans["is_runnable"] and report["world_size"] == 1):
        prompt = "--prompt 'Hello'" if TOKENIZER_FILES[0] in files else "--token_ids 0"
        following = f"generate --engine_dir {quoted} {prompt}"
        place = f", on a GPU of {plans['target']}" if plans else ""
    console.print(escape(f"next{place}: dsv4-trt {following}"), soft_wrap=True)


def print_dry_run(report: Report) -> None:
    """Print what would be built."""
    console, graphs, engine = plain_console(), report["graphs"], report["engine"]
    has_plans = engine in TENSORRT
    target = report["target"] or (
        "the GPU of the machine that builds it" if has_plans else "any GPU"
    )
    lines = [
        f"would build {report['output_dir']} for {report['world_size']} rank(s), engine {engine} for "
        f"{target}; nothing is written",
        *(f"  {name}" for name in report["files"]),
    ]
    for name, graph in graphs.items():
        lines += _graph(name, graph, report["page_bytes"])
    console.print(escape("\n".join(lines)), soft_wrap=True)
    if not has_plans:
        ops = {name: graph["ops"] for name, graph in graphs.items()}
        console.print(counts_table("nodes", "op", ops))
        return
    console.print(layers_table(graphs))
    console.print(profiles_table("profiles: least, usual, most", report["profiles"]))
    console.print(f"streams: the main one and at most {report['max_aux_streams']} beside it")
    library = report["plugin_library"]
    if library is not None:
        console.print(escape(f"plugins: {library}"), soft_wrap=True)
    else:
        console.print(f"plugins: {NOT_RUNNABLE}; {how_to_run(report['target'])}", soft_wrap=True)


def _graph(name: str, graph: Report, page_bytes: Report) -> list[str]:
    """Nodes, inputs and outputs of a graph."""
    inputs = graph["num_inputs"]
    pools = (f"{n:,} in pages of {page_bytes[pool]:,} B" for pool, n in graph["pools"].items())
    return [
        f"{name}: {graph['num_nodes']:,} nodes, {sum(inputs.values()):,} inputs, "
        f"{graph['num_outputs']} outputs",
        f"  inputs of a step  {inputs['step']:,}, and {inputs['block_tables']} block tables",
        f"  weights           {inputs['weights']:,}, {graph['weight_bytes']:,} B for each rank",
        f"  KV pools          {inputs['pools']:,}: {', '.join(pools)}",
    ]
