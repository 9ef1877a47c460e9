"""Options in TensorRT-LLM's spelling: `--tp_size`, and `--tp-size` as the same option."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def option(name: str, *more: str, **kwargs: Any) -> Callable[[F], F]:
    """`click.option` that also accepts the name with dashes instead of underscores."""
    dashed = name.replace("_", "-")
    names = [name] if dashed == name else [name, dashed]
    kwargs.setdefault("show_default", "default" in kwargs and kwargs["default"] is not None)
    return click.option(*names, *more, **kwargs)


json_option = option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
