"""`dsv4-trt build`: rank checkpoint to engine bundle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dsv4_trt.cli.options import PATH, json_option, option
from dsv4_trt.contract import ENGINES, TOKENIZER_FILES, BuildSpec
from dsv4_trt.precision import INDEXER_CACHE_DTYPES, KV_CACHE_DTYPES

DEFAULTS = BuildSpec()


@click.command()
@option("--checkpoint_dir", required=True, type=PATH, help="From convert.")
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
    checkpoint_dir: Path,
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
    """
    from dsv4_trt.builder.bundle import build_bundle
    from dsv4_trt.rank_checkpoint import load_rank_checkpoint

    checkpoint = load_rank_checkpoint(checkpoint_dir)
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
