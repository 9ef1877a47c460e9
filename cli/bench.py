"""`dsv4-trt bench`: a server or an engine under load."""

from __future__ import annotations

import click

from dsv4_trt.cli.bench_engine import engine
from dsv4_trt.cli.bench_serve import serve


@click.group()
def command() -> None:
    """Measure a server or an engine under load.

    \b
    Example:
      dsv4-trt bench serve --base_url http://127.0.0.1:8000 --concurrency 16 --num_requests 200
      dsv4-trt bench engine --engine_dir ENGINE --mode throughput
    """


command.add_command(serve)
command.add_command(engine)
