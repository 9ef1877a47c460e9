"""Byte sizes on the command line and in tables: `5GB`, `512MiB`, `140.4GiB`."""

from __future__ import annotations

import re
from fractions import Fraction

import click

UNITS = {
    **{"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40},
}


def size_option(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Callback of an option that is a number of bytes, at least 1."""
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?)\s*([A-Z]+)", value.upper(), re.ASCII)
    size = int(Fraction(match[1]) * UNITS.get(match[2], 0)) if match else 0
    if size < 1:
        raise click.BadParameter(
            f"{value!r} is no size; expected a number and a unit, such as 5GB or 512MiB"
        )
    return size


def gib(num_bytes: int) -> str:
    """Bytes for a reader."""
    if num_bytes < 1 << 30:
        return f"{num_bytes / (1 << 20):.1f} MiB"
    return f"{num_bytes / (1 << 30):.2f} GiB"
