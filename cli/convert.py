"""`dsv4-trt convert`: official checkpoint to rank checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from dsv4_trt.cli.options import PATH, json_option, option
from dsv4_trt.cli.termination import signals_unwind

if TYPE_CHECKING:
    from dsv4_trt.convert.dry_run import DryRun
    from dsv4_trt.convert.pipeline import ConvertReport


@click.command()
@option("--model_dir", required=True, type=PATH, help="Official checkpoint.")
@option("--output_dir", required=True, type=PATH, help="New or empty folder.")
@option("--tp_size", type=click.IntRange(min=1), default=1, help="Ranks.")
@option("--moe_ep_size", type=click.IntRange(min=1), default=1, help="Groups the experts go to.")
@option("--workers", type=click.IntRange(min=1), help="Threads [default: one a core, 4 to 8].")
@option(
    "--experts",
    type=click.Choice(["keep", "fp8"]),
    default="keep",
    help="fp8 stores fp4 experts as fp8, without loss and twice as large.",
)
@option(
    "--mtp",
    type=click.Choice(["keep", "skip"]),
    default="keep",
    help="skip leaves the MTP block (or a DSpark drafter) out.",
)
@option("--resume", is_flag=True, help="Go on where an interrupted run stopped.")
@option("--verify", is_flag=True, help="Reread the result and compare samples with the source.")
@option("--dry-run", is_flag=True, help="Print files, bytes and peak disk; write nothing.")
@json_option
def command(
    model_dir: Path,
    output_dir: Path,
    tp_size: int,
    moe_ep_size: int,
    workers: int | None,
    dry_run: bool,
    as_json: bool,
    **choices: Any,
) -> None:
    """Convert an official DeepSeek-V4 checkpoint to one file per rank.

    The result appears complete or not at all. An interrupted run keeps what it finished in
    .NAME.partial beside the output, for --resume; a run without --resume starts over.

    \b
    Example:
      dsv4-trt convert --model_dir DeepSeek-V4-Flash --output_dir CKPT --tp_size 4 --moe_ep_size 4
    """
    from dsv4_trt.cli.progress import progress
    from dsv4_trt.convert.conversion import ConvertOptions, default_workers, prepare
    from dsv4_trt.convert.dry_run import dry_run as plan_only
    from dsv4_trt.convert.pipeline import convert
    from dsv4_trt.mapping import Mapping

    options = ConvertOptions(
        model_dir=model_dir,
        output_dir=output_dir,
        mapping=Mapping(tp_size=tp_size, moe_ep_size=moe_ep_size),
        workers=workers or default_workers(),
        **choices,
    )
    if dry_run:
        _print_plan(plan_only(prepare(options)), as_json)
        return
    with _interruptible(output_dir):
        conversion = prepare(options)
        with progress("converting", conversion.nbytes) as advance:
            report = convert(conversion, advance)
    _print_report(report, as_json)


@contextmanager
def _interruptible(output_dir: Path) -> Iterator[None]:
    """SIGTERM ends the run like Ctrl-C does: jobs stop, and a hint says what is left to resume."""
    try:
        with signals_unwind():
            yield
    except (KeyboardInterrupt, SystemExit):
        from dsv4_trt.convert.staging import partial_dir

        partial = partial_dir(output_dir)
        if partial.exists():
            click.echo(
                f"interrupted: finished tensors are kept in {partial}; the same command with "
                "--resume goes on, without it starts over",
                err=True,
            )
        raise


def _print_plan(plan: DryRun, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({**asdict(plan), "fits": plan.fits}, indent=2))
        return
    click.echo(
        f"source: {plan.source_files} file(s), {plan.source_tensors:,} tensors, "
        f"{_size(plan.source_bytes)}, experts {plan.expert_dtype}, scales {plan.scale_dtype}"
    )
    click.echo("rank files, each allocated whole at once, so its size is its peak disk:")
    for name, nbytes in plan.rank_files.items():
        click.echo(f"  {name:24} {plan.rank_tensors:>6,} tensors {_size(nbytes)}")
    for name in plan.copied:
        click.echo(f"  {name:24} copied")
    click.echo(f"total: {_size(plan.total_bytes)} in {len(plan.rank_files)} rank file(s)")
    verdict = "it fits" if plan.fits else "it does NOT fit"
    click.echo(f"peak disk: {_size(plan.peak_bytes)}, free {_size(plan.free_bytes)}: {verdict}")


def _print_report(report: ConvertReport, as_json: bool) -> None:
    if as_json:
        data = {**asdict(report), "output_dir": str(report.output_dir)}
        click.echo(json.dumps(data, indent=2))
        return
    total = sum(report.rank_bytes)
    click.echo(
        f"converted {report.output_dir}: {len(report.rank_bytes)} rank file(s), {_size(total)} "
        f"in {report.seconds:.1f} s"
    )
    if report.resumed_tensors:
        click.echo(f"  {report.resumed_tensors} tensors were finished by a former run")
    if report.verified_bytes:
        click.echo(
            f"  verified: {_size(report.verified_bytes)} compared with the source, all equal"
        )
    checkpoint = quote(str(report.output_dir))
    click.echo(f"next: dsv4-trt build --checkpoint_dir {checkpoint} --output_dir ENGINE")


def _size(nbytes: int) -> str:
    return f"{nbytes:>17,} B ({nbytes / 1e9:.2f} GB)".strip()
