"""`dsv4-trt make-checkpoint`: a random checkpoint in the official format."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dsv4_trt.cli.options import PATH, json_option, option
from dsv4_trt.cli.presets import LEGAL, preset
from dsv4_trt.cli.progress import progress
from dsv4_trt.cli.sizes import size_option
from dsv4_trt.errors import ConfigError

if TYPE_CHECKING:
    from dsv4_trt.model_spec import ModelSpec


@click.command("make-checkpoint")
@option(
    "--preset",
    "spec",
    callback=preset,
    metavar="PRESET",
    required=True,
    help=f"{LEGAL} (the first N layers at full width).",
)
@option("--output_dir", type=PATH, required=True, help="New folder to write.")
@option("--seed", type=click.IntRange(min=0), default=0, help="Same seed, same weights.")
@option(
    "--expert_dtype",
    type=click.Choice(["fp4", "fp8"]),
    default="fp4",
    help="fp4: the instruct layout. fp8: the Base layout, whose scales are float32.",
)
@option("--mtp/--no-mtp", default=True, help="With the multi-token prediction block.")
@option(
    "--shard_size",
    callback=size_option,
    metavar="SIZE",
    default="4GiB",
    help="Bytes of one file at most.",
)
@option("--vocab_size", type=click.IntRange(min=2), help="Another vocabulary size.")
@option("--tokenizer/--no-tokenizer", default=True, help="With the V4 tokenizer (extra: demo).")
@json_option
def command(
    spec: ModelSpec,
    output_dir: Path,
    seed: int,
    expert_dtype: str,
    mtp: bool,
    shard_size: int,
    vocab_size: int | None,
    tokenizer: bool,
    as_json: bool,
) -> None:
    """Write a random checkpoint in the official DeepSeek-V4 format.

    \b
    Example:
      dsv4-trt make-checkpoint --preset tiny --seed 1 --output_dir HF
    """
    from dsv4_trt.convert.random_checkpoint import checkpoint_shards, write_random_checkpoint
    from dsv4_trt.convert.random_checkpoint_tokenizer import VOCAB_SIZE, tokenizer_files
    from dsv4_trt.dtypes import DType

    spec = replace(spec, expert_dtype=expert_dtype, vocab_size=vocab_size or spec.vocab_size)
    if tokenizer and spec.vocab_size != VOCAB_SIZE:
        raise ConfigError(
            f"vocab_size is {spec.vocab_size}; expected the tokenizer's {VOCAB_SIZE}, or "
            "--no-tokenizer"
        )
    files = tokenizer_files() if tokenizer else {}
    base = expert_dtype == "fp8"
    layout: dict[str, Any] = {
        "scale_dtype": DType.F32 if base else DType.F8_E8M0,
        "mtp": mtp,
        "base_copies": base and mtp,
        "shard_bytes": shard_size,
    }
    total = sum(shard.nbytes for shard in checkpoint_shards(spec, **layout))
    with progress("make-checkpoint", total) as advance:
        shards = write_random_checkpoint(
            spec, output_dir, seed=seed, extra_files=files, progress=advance, **layout
        )
    tensors = sum(len(shard.tensors) for shard in shards)
    if as_json:
        found = {"output_dir": str(output_dir), "num_tensors": tensors, "num_bytes": total}
        click.echo(json.dumps(found | {"num_shards": len(shards), "seed": seed}))
    else:
        size = f"{tensors} tensors, {total / 1e9:.2f} GB, {len(shards)} shards"
        click.echo(f"wrote {output_dir}: {size}")
