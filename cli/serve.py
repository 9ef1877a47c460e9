"""`dsv4-trt serve`: an engine bundle behind OpenAI's and Anthropic's APIs, and a page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dsv4_trt.cli.kernels import prepare_kernels
from dsv4_trt.cli.options import PATH, option
from dsv4_trt.cli.termination import signals_unwind
from dsv4_trt.errors import MissingDependency

if TYPE_CHECKING:
    from dsv4_trt.runtime.server.executor_process import Opened
    from dsv4_trt.runtime.server.serve_config import ServeConfig


API_KEY = "DSV4_API_KEY"
LOG_LEVELS = ("debug", "info", "warning", "error")


@click.command()
@option("--engine_dir", type=PATH, help="An engine bundle; may be given by --config.")
@option("--config", type=PATH, help="YAML with these options by name; the command line wins.")
@option("--host", help="Address to listen at; default localhost, 0.0.0.0 = all.")
@option("--port", type=int, help="Port; default 8000, 0 = a free one.")
@option("--served_model_name", help="Name of the model; default the bundle's folder.")
@option("--api_key", help="Asked of every client; or in DSV4_API_KEY.")
@option("--max_batch_size", type=int, help="Sequences that run together; default as built.")
@option("--max_num_tokens", type=int, help="Tokens of a step; default as built.")
@option("--max_seq_len", type=int, help="Tokens of prompt and answer; default as built.")
@option("--kv_cache_free_gpu_memory_fraction", type=float, help="Of free memory; default 0.9.")
@option("--tp_size", type=int, help="Ranks; what the bundle was converted for.")
@option("--tool_parser", help="deepseek_v4, which is also the default.")
@option("--reasoning_parser", help="deepseek_v4, which is also the default.")
@option("--tokenizer", type=PATH, help="Folder with tokenizer.json; default the bundle's.")
@option("--checkpoint_dir", type=PATH, help="Where the weights are.")
@option("--device", type=click.Choice(["cpu", "cuda", "auto"]), help="Default auto.")
@option("--precision", type=click.Choice(["serving", "exact"]), help="Default serving.")
@option("--max_queue_size", type=int, help="Sequences that may wait; default 1024.")
@option("--max_request_bytes", type=int, help="Of a request's body; default 16 MiB.")
@option("--request_timeout", type=float, help="Seconds a request may run; default 3600.")
@option(
    "--drain_timeout", type=float, help="Seconds that running requests get at the end; default 60."
)
@option("--body_timeout", type=float, help="Seconds a client may take to send; default 30.")
@option("--log_level", type=click.Choice(LOG_LEVELS), help="Default info.")
@option("--log_format", type=click.Choice(["text", "json"]), help="Default text.")
def command(config: Path | None, **given: Any) -> None:
    """Serve an engine.

    \b
    Example:
      dsv4-trt serve --engine_dir ENGINE --port 8000
      curl localhost:8000/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hi"}]}' \\
          -H 'content-type: application/json'
    """
    try:
        from dsv4_trt.runtime.server.serve import serve
        from dsv4_trt.runtime.server.serve_config import read_config
    except ModuleNotFoundError as error:
        if str(error.name).startswith("dsv4_trt"):
            raise
        raise MissingDependency(str(error.name), "serve", "dsv4-trt serve") from error
    given = {name: value for name, value in given.items() if value is not None}
    if API_KEY in os.environ:  # an empty one is refused, not taken for none
        given.setdefault("api_key", os.environ[API_KEY])
    options = read_config(config, given)
    with signals_unwind():
        serve(
            options,
            open_executor=open_with_kernels,
            on_ready=lambda url: click.echo(f"serving {options.model_name} at {url}"),
        )


def open_with_kernels(config: ServeConfig) -> Opened:
    """`open_served`, in the engine's process, once kernels that its GPU lacks are compiled."""
    from dsv4_trt.runtime.bundle import open_bundle
    from dsv4_trt.runtime.server.open_served import open_served

    bundle = open_bundle(
        config.engine_dir, precision=config.precision, checkpoint_dir=config.checkpoint_dir
    )
    prepare_kernels(bundle, config.device)
    return open_served(config)
