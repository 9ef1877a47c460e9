"""`dsv4-trt triton`: models for Triton Inference Server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dsv4_trt.cli.options import (
    PATH,
    checkpoint_dir_option,
    device_option,
    engine_dir_option,
    option,
    precision_option,
)


@click.group()
def command() -> None:
    """Serve an engine through Triton Inference Server.

    \b
    Example:
      dsv4-trt triton export --engine_dir ENGINE --output_dir REPOSITORY
    """


@command.command()
@engine_dir_option
@option("--output_dir", required=True, type=PATH, help="A model repository, new or not.")
@option("--model_name", default="tensorrt_llm", help="The model's name, a new folder in there.")
@option("--triton_max_batch_size", type=int, default=0, help="Above 0: tensors are [batch, n].")
@option(
    "--tokenizer_dir", type=PATH, help="A folder with a tokenizer.json [default: the engine's]."
)
@option("--max_batch_size", type=int, help="Sequences that run together [default: as built].")
@option("--max_num_tokens", type=int, help="Tokens of a step [default: as built].")
@option("--max_seq_len", type=int, help="Tokens of a sequence [default: as built].")
@option("--max_queue_size", type=int, help="Prompts that may wait [default: 1024].")
@option(
    "--kv_cache_free_gpu_memory_fraction", type=float, help="Of what weights leave [default: 0.9]."
)
@option(
    "--kv_cache_max_tokens",
    type=int,
    help="KV cache for that many tokens [default: all that fits].",
)
@option("--enable_kv_cache_reuse/--no_kv_cache_reuse", default=None, help="Prompts share pages.")
@device_option
@precision_option
@checkpoint_dir_option
def export(output_dir: Path, model_name: str, triton_max_batch_size: int, **options: Any) -> None:
    """Write a model into a Triton model repository.

    \b
    Example:
      dsv4-trt triton export --engine_dir ENGINE --output_dir REPOSITORY
      tritonserver --model-repository REPOSITORY
    """
    from dsv4_trt.runtime.triton.engine_options import EngineOptions
    from dsv4_trt.runtime.triton.repository import export_model

    for name, value in options.items():
        if isinstance(value, Path):
            options[name] = str(value.absolute())
    engine = EngineOptions(**options)
    engine.check()
    place = export_model(output_dir, engine, name=model_name, max_batch_size=triton_max_batch_size)
    click.echo(f"wrote {place}")
    click.echo(f"next: tritonserver --model-repository {output_dir}")
