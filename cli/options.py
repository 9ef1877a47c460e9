"""Options in TensorRT-LLM's spelling (`--tp_size`, or `--tp-size`), and those of several commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def option(name: str, *more: str, **kwargs: Any) -> Callable[[F], F]:
    """`click.option` that also accepts the name with dashes instead of underscores."""
    dashed = name.replace("_", "-")
    names = [name] if dashed == name else [name, dashed]
    kwargs.setdefault("show_default", "default" in kwargs and kwargs["default"] is not None)
    return click.option(*names, *more, **kwargs)


PATH = click.Path(path_type=Path)

json_option = option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
engine_dir_option = option("--engine_dir", required=True, type=PATH, help="An engine bundle.")
checkpoint_dir_option = option("--checkpoint_dir", type=PATH, help="Where the weights are.")
device_option = option(
    "--device",
    type=click.Choice(["cpu", "cuda", "auto"]),
    default="auto",
    help="auto: a GPU where torch sees one.",
)
precision_option = option(
    "--precision",
    type=click.Choice(["serving", "exact"]),
    default="serving",
    help="serving: number formats of the release; exact: fp32 without quantizers.",
)
