"""The report of `dsv4-trt bench` as text."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

TITLES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "inter-token latency",
    "e2el": "end-to-end latency",
    "delay": "late in the client",
    "step": "engine step",
}
COLUMNS = ("mean", "median", "p90", "p95", "p99", "max")
BUSY = 0.9  # of a core, above which the client itself is part of what is measured
LATE_MS = 10.0


def print_report(console: Console, report: dict[str, Any], title: str) -> None:
    """Counts and rates, a table of latencies, and what a reader should be warned of."""
    console.print(f"[bold]{escape(title)}[/]")
    for line in _lines(report):
        console.print(escape(line))
    console.print(_table(report))
    for warning in warnings(report):
        console.print(f"[yellow]warning:[/] {escape(warning)}")


def _lines(report: dict[str, Any]) -> list[str]:
    r = report
    lines = [
        f"requests: {r['completed']:,} completed, {r['failed']:,} failed, {r['cancelled']:,} cancelled "
        f"in {r['duration']:.2f} s; at most {r['max_concurrency']:,} at once, "
        f"{r['mean_concurrency']:.1f} on average",
        f"tokens: {r['total_input_tokens']:,} in ({r['total_cached_tokens']:,} cached), "
        f"{r['total_output_tokens']:,} out",
        f"per second: {r['request_throughput']:.2f} requests, {r['input_throughput']:.1f} tokens in, "
        f"{r['output_throughput']:.1f} out, {r['total_token_throughput']:.1f} in all",
    ]
    if "good" in r:
        lines.append(f"good: {r['good']:,} requests, {r['request_goodput']:.2f} per second")
    for kind, count in r["errors"].items():
        lines.append(f"failed with {kind}: {count:,}, the first: {r['error_samples'][kind]}")
    return lines


def _table(report: dict[str, Any]) -> Table:
    table = Table()
    table.add_column("ms")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for name, title in TITLES.items():
        if report.get(f"mean_{name}_ms") is not None:
            cells = (f"{report[f'{column}_{name}_ms']:,.2f}" for column in COLUMNS)
            table.add_row(title, *cells)
    return table


def warnings(report: dict[str, Any]) -> list[str]:
    """What makes the numbers worth less than they look."""
    found = []
    if report.get("client_cpu", 0.0) > BUSY:
        found.append(
            f"the client itself took {report['client_cpu']:.2f} cores; part of the latencies is its own"
        )
    late = report["p99_delay_ms"]
    if late is not None and late > LATE_MS:
        found.append(
            f"1% of the requests were sent {late:.0f} ms or more after they were due; latencies count "
            "from when they were due"
        )
    if report["unchecked"]:
        found.append(
            f"{report['unchecked']:,} answers came without token ids or usage: lost tokens would not "
            "show; --count_by logprobs counts them where the server gives log-probabilities"
        )
    if report["interrupted"]:
        found.append("the load was interrupted; requests under way are left out")
    return found
