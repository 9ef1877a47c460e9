"""What a finished load becomes: a report on the terminal, a JSON file, a picture, an exit code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dsv4_trt.cli.published import published

if TYPE_CHECKING:
    from dsv4_trt.runtime.bench.load import Run

PICTURES = (".png", ".svg")
TOKENS_DIFFER = "tokens"  # the kind of failure of lost or doubled tokens


def check_outputs(output: Path | None, save_requests: bool, plot: Path | None) -> None:
    """Refuse, before a load that may take hours, files that can not be written."""
    if save_requests and output is None:
        raise click.UsageError("--save_requests writes into the file of --output; name one")
    if output is not None:
        check_place("--output", output)
    if plot is not None:
        from dsv4_trt.cli.bench_plot import require_matplotlib

        require_matplotlib()
        check_place("--plot", plot, *PICTURES)


def check_place(option: str, path: Path, *suffixes: str) -> None:
    """Raise `ConfigError` unless a file can be written there; nothing is left behind."""
    with suppress(_Tried), published(option, path, *suffixes):
        raise _Tried


class _Tried(Exception):
    """Ends a publication before it replaces anything."""


def parse_goodput(text: str | None) -> dict[str, float]:
    """The limits of `--goodput`, none where it was not given."""
    from dsv4_trt.runtime.bench.objectives import parse_objectives

    return {} if text is None else parse_objectives(text)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run, what it is called beside others, and its report."""

    label: str
    run: Run
    report: dict[str, Any]


def measure(
    run: Run, label: str, objectives: Mapping[str, float], description: str
) -> tuple[Measured, int | None]:
    """Run a load and report it; also the signal that ended it early."""
    from dsv4_trt.cli.bench_run import run_load
    from dsv4_trt.runtime.bench.report import report_of

    signum = run_load(run, description)
    report = report_of(run.records, run.seconds, objectives)
    report["interrupted"] = signum is not None
    return Measured(label, run, report), signum


def requests_of(run: Run) -> list[dict[str, Any]]:
    """A record of each request, as plain data."""
    return [record.as_json(run.began) for record in run.records]


def arguments_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the command was told, as plain data, without the key."""
    told = {name: value for name, value in given.items() if name != "api_key"}
    return {n: str(v) if isinstance(v, Path) else v for n, v in told.items()}


def publish(
    given: Mapping[str, Any], title: str, measured: Sequence[Measured], result: Mapping[str, Any]
) -> None:
    """Write the files that were asked for, then show the report."""
    if given["output"] is not None:
        with published("--output", given["output"]) as partial:
            partial.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if given["plot"] is not None:
        from dsv4_trt.cli.bench_plot import write_plot

        write_plot([(one.label, one.run) for one in measured], title, given["plot"])
    if given["as_json"]:
        click.echo(json.dumps(result))
        return
    from dsv4_trt.cli.bench_text import print_report
    from dsv4_trt.cli.tables import plain_console

    console = plain_console()
    for one in measured:
        print_report(console, one.report, f"{title} {one.label}".strip())


def exit_code(reports: Sequence[Mapping[str, Any]], signum: int | None) -> int:
    """128 + signal after one; 1 where nothing was completed or tokens were lost; else 0."""
    if signum is not None:
        return 128 + signum
    bad = any(r["completed"] == 0 or TOKENS_DIFFER in r["errors"] for r in reports)
    return int(bad)
