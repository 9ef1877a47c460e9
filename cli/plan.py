"""`dsv4-trt plan`: how the KV cache of a model lies in the memory of its GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dsv4_trt.cli.options import PATH, json_option, option
from dsv4_trt.cli.plan_source import PRESETS, bundle_source, preset_source
from dsv4_trt.cli.sizes import size_option
from dsv4_trt.contract import BuildSpec
from dsv4_trt.precision import INDEXER_CACHE_DTYPES, KV_CACHE_DTYPES

DEFAULTS = BuildSpec()


@click.command()
@option("--engine_dir", type=PATH, help="An engine bundle; it says all that it was built with.")
@option("--preset", type=click.Choice(list(PRESETS)), help="A release, instead of a bundle.")
@option("--memory", callback=size_option, metavar="SIZE", default="141GiB", help="Of one GPU.")
@option("--tp_size", "--tp", type=click.IntRange(min=1), help="Ranks [default: 1].")
@option("--moe_ep_size", type=click.IntRange(min=1), help="Groups the experts go to [default: 1].")
@option(
    "--kv_cache_dtype",
    type=click.Choice(KV_CACHE_DTYPES),
    help=f"Format of window and compressed entries [default: {DEFAULTS.kv_cache_dtype}].",
)
@option(
    "--indexer_cache_dtype",
    type=click.Choice(INDEXER_CACHE_DTYPES),
    help=f"Format of indexer keys [default: {DEFAULTS.indexer_cache_dtype}].",
)
@option(
    "--max_seq_len",
    type=click.IntRange(min=1),
    help="Tokens of a sequence; one of them always fits [default: what the model allows].",
)
@option(
    "--max_batch_size",
    type=click.IntRange(min=1, max=DEFAULTS.max_num_tokens),
    help=f"Sequences a step [default: {DEFAULTS.max_batch_size}].",
)
@option(
    "--mix",
    metavar="MIX",
    help="Expected traffic, count x tokens [default: 64x8K,8x128K, cut to max_seq_len].",
)
@option(
    "--kv_cache_free_gpu_memory_fraction",
    "free_fraction",
    type=float,
    default=0.9,
    help="Part of what the weights leave.",
)
@click.option("--mtp/--no-mtp", default=None, help="With the MTP block [default: with].")
@option("--plot", type=PATH, metavar="FILE", help="Also draw bytes by class, as .png or .svg.")
@json_option
def command(
    engine_dir: Path | None,
    preset: str | None,
    memory: int,
    mix: str | None,
    free_fraction: float,
    plot: Path | None,
    as_json: bool,
    **choices: Any,
) -> None:
    """Plan the KV cache: what a token costs, pool sizes, the largest context, concurrency.

    Nothing is loaded and no GPU is needed. All numbers are those of one rank; every rank holds the
    whole KV cache.

    \b
    Example:
      dsv4-trt plan --preset flash --memory 141GiB --tp 2
    """
    from dsv4_trt.cli.plan_memory import device_memory
    from dsv4_trt.cli.plan_report import cut, plan_report
    from dsv4_trt.kv_mix import DEFAULT_MIX, parse_mix

    if engine_dir is not None and preset is None:
        source = bundle_source(engine_dir, choices)
    elif preset is not None and engine_dir is None:
        source = preset_source(preset, choices)
    else:
        raise click.UsageError("name either --engine_dir or --preset")
    loads = parse_mix(mix) if mix is not None else cut(DEFAULT_MIX, source.build.max_seq_len)
    report = plan_report(source, device_memory(source, memory, free_fraction), loads)
    if plot is not None:
        from dsv4_trt.cli.plan_plot import write_plot

        write_plot(report, plot)
    if as_json:
        click.echo(json.dumps(report))
    else:
        from dsv4_trt.cli.plan_text import print_plan

        print_plan(report, source.spec.max_position_embeddings)
