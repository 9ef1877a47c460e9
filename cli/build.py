"""`dsv4-trt build`: rank checkpoint to engine bundle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dsv4_trt.cli.options import PATH, json_option, option
from dsv4_trt.cli.presets import LEGAL, preset
from dsv4_trt.cli.progress import steps
from dsv4_trt.cli.termination import signals_unwind
from dsv4_trt.contract import BuildSpec
from dsv4_trt.precision import INDEXER_CACHE_DTYPES, KV_CACHE_DTYPES
from dsv4_trt.targets import ARCHITECTURES, ENGINES, TENSORRT, check_target, default_target

if TYPE_CHECKING:
    from dsv4_trt.model_spec import ModelSpec
    from dsv4_trt.rank_checkpoint import RankCheckpoint

DEFAULTS = BuildSpec()


@click.command()
@option("--checkpoint_dir", type=PATH, default=None, help="From convert.")
@option(
    "--preset",
    "spec",
    callback=preset,
    metavar="PRESET",
    default=None,
    help=f"With --dummy-weights: {LEGAL}.",
)
@click.option(
    "--dummy-weights",
    is_flag=True,
    help="No weights: the engine makes them up on its GPU, to measure speed.",
)
@option("--output_dir", required=True, type=PATH, help="New or empty folder.")
@option(
    "--engine",
    type=click.Choice(ENGINES),
    default=DEFAULTS.engine,
    help="What runs it: our own engine, or plans of TensorRT 11 or of TensorRT-RTX.",
)
@option(
    "--target",
    type=click.Choice(ARCHITECTURES),
    default=None,
    help="GPU that plans are for [default: sm_120a for tensorrt-rtx, else this machine's].",
)
@option(
    "--plugin_library",
    type=PATH,
    default=None,
    help="Of TensorRT plugins [default: what `plugins build` made, or else Python twins, which build "
    "plans to look at].",
)
@option("--input_timing_cache", type=PATH, default=None, help="Of an earlier build, for tensorrt.")
@option("--output_timing_cache", type=PATH, default=None, help="For later builds, of tensorrt.")
@option("--max_batch_size", type=int, default=DEFAULTS.max_batch_size, help="Sequences a step.")
@option("--max_num_tokens", type=int, default=DEFAULTS.max_num_tokens, help="Tokens a step.")
@option(
    "--max_seq_len",
    type=int,
    default=None,
    help=f"Tokens of a sequence [default: {DEFAULTS.max_seq_len}, or what the model allows].",
)
@option(
    "--kv_cache_dtype",
    type=click.Choice(KV_CACHE_DTYPES),
    default=DEFAULTS.kv_cache_dtype,
    help="Format of window and compressed entries.",
)
@option(
    "--indexer_cache_dtype",
    type=click.Choice(INDEXER_CACHE_DTYPES),
    default=DEFAULTS.indexer_cache_dtype,
    help="Format of indexer keys.",
)
@click.option("--mtp/--no-mtp", default=None, help="Build the MTP block [default: if present].")
@option("--dry-run", is_flag=True, help="Print what would be built; needs no TensorRT.")
@json_option
def command(
    checkpoint_dir: Path | None,
    spec: ModelSpec | None,
    dummy_weights: bool,
    output_dir: Path,
    plugin_library: Path | None,
    input_timing_cache: Path | None,
    output_timing_cache: Path | None,
    max_seq_len: int | None,
    mtp: bool | None,
    dry_run: bool,
    as_json: bool,
    **choices: Any,
) -> None:
    """Build an engine bundle from a rank checkpoint.

    \b
    Example:
      dsv4-trt build --checkpoint_dir CKPT --output_dir ENGINE --max_seq_len 65536
      dsv4-trt build --checkpoint_dir CKPT --output_dir ENGINE --engine tensorrt-rtx --target sm_120a
      dsv4-trt build --preset pro --dummy-weights --output_dir ENGINE --engine tensorrt --dry-run
    """
    from dsv4_trt.builder.bundle import build_bundle
    from dsv4_trt.builder.dry_run import dry_run as look
    from dsv4_trt.builder.plans import PlanOptions
    from dsv4_trt.cli.build_report import build_report, dry_run_report
    from dsv4_trt.cli.build_text import print_build, print_dry_run

    check_target(choices["engine"], choices["target"])
    checkpoint = _checkpoint(checkpoint_dir, spec, dummy=dummy_weights, mtp=mtp)
    limit = checkpoint.spec.max_position_embeddings
    build = BuildSpec(
        max_seq_len=min(DEFAULTS.max_seq_len, limit) if max_seq_len is None else max_seq_len,
        mtp=checkpoint.mtp if mtp is None else mtp,
        **choices,
    )
    options = PlanOptions(
        plugin_library=plugin_library or _plugin_library(build),
        input_timing_cache=input_timing_cache,
        output_timing_cache=output_timing_cache,
    )
    if dry_run:
        report = dry_run_report(output_dir, look(checkpoint, output_dir, build, options))
        show = print_dry_run
    else:
        with signals_unwind(), steps() as progress:
            options = replace(options, progress=progress)
            record = build_bundle(checkpoint, output_dir, build, options)
        report = build_report(output_dir, checkpoint.mapping.world_size, record)
        show = print_build
    if as_json:
        click.echo(json.dumps(report))
    else:
        show(report)


def _plugin_library(build: BuildSpec) -> Path | None:
    """The library that `plugins build` made for what is built for, if it has plugins."""
    if build.engine not in TENSORRT:
        return None
    from dsv4_trt.plugins.library_build import find_library
    from dsv4_trt.runtime.open import device_architecture

    target = build.target or default_target(build.engine) or device_architecture()
    return None if target is None else find_library(target, plugins=True)


def _checkpoint(
    checkpoint_dir: Path | None, spec: ModelSpec | None, *, dummy: bool, mtp: bool | None
) -> RankCheckpoint:
    from dsv4_trt.builder.dummy_checkpoint import dummy_checkpoint
    from dsv4_trt.rank_checkpoint import load_rank_checkpoint

    if checkpoint_dir is not None and spec is None and not dummy:
        return load_rank_checkpoint(checkpoint_dir)
    if checkpoint_dir is None and spec is not None and dummy:
        return dummy_checkpoint(spec, mtp=mtp is not False)
    raise click.UsageError(
        "give either --checkpoint_dir, or --preset together with --dummy-weights"
    )
