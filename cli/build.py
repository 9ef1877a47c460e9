"""`dsv4-trt build`: rank checkpoint to engine bundle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dsv4_trt.cli.options import PATH, json_option, option
from dsv4_trt.cli.presets import preset
from dsv4_trt.contract import TOKENIZER_FILES, BuildSpec
from dsv4_trt.precision import INDEXER_CACHE_DTYPES, KV_CACHE_DTYPES
from dsv4_trt.targets import ENGINES

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
    help="With --dummy-weights: tiny, small, flash-layers=N or pro-layers=N.",
)
@click.option(
    "--dummy-weights",
    is_flag=True,
    help="No weights: the engine makes them up on its GPU, to measure speed.",
)
@option("--output_dir", required=True, type=PATH, help="New or empty folder.")
@option("--engine", type=click.Choice(ENGINES), default=DEFAULTS.engine, help="What runs it.")
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
@json_option
def command(
    checkpoint_dir: Path | None,
    spec: ModelSpec | None,
    dummy_weights: bool,
    output_dir: Path,
    max_seq_len: int | None,
    mtp: bool | None,
    as_json: bool,
    **choices: Any,
) -> None:
    """Build an engine bundle from a rank checkpoint.

    \b
    Example:
      dsv4-trt build --checkpoint_dir CKPT --output_dir ENGINE --max_seq_len 65536
      dsv4-trt build --preset flash-layers=8 --dummy-weights --output_dir ENGINE
    """
    from dsv4_trt.builder.bundle import build_bundle

    checkpoint = _checkpoint(checkpoint_dir, spec, dummy=dummy_weights, mtp=mtp)
    limit = checkpoint.spec.max_position_embeddings
    build = BuildSpec(
        max_seq_len=min(DEFAULTS.max_seq_len, limit) if max_seq_len is None else max_seq_len,
        mtp=checkpoint.mtp if mtp is None else mtp,
        **choices,
    )
    build_bundle(checkpoint, output_dir, build)
    files = {f.name: f.stat().st_size for f in sorted(output_dir.iterdir()) if f.is_file()}
    if as_json:
        click.echo(json.dumps({"output_dir": str(output_dir), "files": files}))
        return
    click.echo(f"built {output_dir} for {checkpoint.mapping.world_size} rank(s)")
    for name, size in files.items():
        click.echo(f"  {name:24} {size:>12,} B")
    prompt = "--prompt 'Hello'" if TOKENIZER_FILES[0] in files else "--token_ids 0"
    click.echo(f"next: dsv4-trt generate --engine_dir {output_dir} {prompt}")


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
