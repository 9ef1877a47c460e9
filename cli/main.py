"""The `dsv4-trt` program: finds a subcommand, imports only it, and turns our errors into exit codes."""

from __future__ import annotations

import errno
import io
import os
import sys
from importlib import import_module

import click

from dsv4_trt import __version__
from dsv4_trt.errors import Dsv4Error

# command -> module under dsv4_trt.cli that holds it as `command`
COMMANDS = {
    "convert": "convert",
    "build": "build",
    "generate": "generate",
    "serve": "serve",
    "triton": "triton",
    "logits": "logits",
    "bench": "bench",
    "inspect": "inspect",
    "plan": "plan",
    "plugins": "plugins",
    "make-checkpoint": "make_checkpoint",
    "doctor": "doctor",
}


class LazyGroup(click.Group):
    """Imports a subcommand's module when it is asked for, so that `--help` stays instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = import_module(f"dsv4_trt.cli.{COMMANDS[name]}").command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dsv4-trt")
def cli() -> None:
    """Convert, build and run DeepSeek-V4 checkpoints.

    \b
    Example:
      dsv4-trt make-checkpoint --preset tiny --output_dir HF
      dsv4-trt convert --model_dir HF --output_dir CKPT
      dsv4-trt build --checkpoint_dir CKPT --output_dir ENGINE
      dsv4-trt generate --engine_dir ENGINE --prompt "Hello"
    """


def main() -> None:
    """Entry point: usage errors exit with 2, ours with 1 and one line, anything else is a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # not every terminal can show every token
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        cli(prog_name="dsv4-trt")
    except Dsv4Error as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        if error.filename is None and error.errno != errno.ENOSPC:
            raise
        place = f"{error.filename}: " if error.filename else ""
        click.echo(f"error: {place}{error.strerror}", err=True)
        if error.filename is None:
            _drop_output()
        sys.exit(1)


def _drop_output() -> None:
    """Let what is still to be written go nowhere: Python would try again at its end, and exit with 120."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
