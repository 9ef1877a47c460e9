"""Names of models on the command line: whole ones, and the first layers of a release."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from dsv4_trt.errors import ConfigError

if TYPE_CHECKING:
    from dsv4_trt.model_spec import ModelSpec


LEGAL = "tiny, small, flash, pro, flash-layers=N or pro-layers=N"


def preset(ctx: click.Context, param: click.Parameter, value: str | None) -> ModelSpec | None:
    """A click callback: the model that a name means, `None` if none is named."""
    if value is None:
        return None
    from dsv4_trt.presets import FLASH, PRO, SMALL, TINY, cut_layers

    whole = {"tiny": TINY, "small": SMALL, "flash": FLASH, "pro": PRO}
    if value in whole:
        return whole[value]
    match = re.fullmatch(r"(flash|pro)-layers=(\d+)", value, re.ASCII)
    if match is None:
        raise click.BadParameter(f"{value!r} is no preset; expected {LEGAL}")
    try:
        return cut_layers(FLASH if match[1] == "flash" else PRO, int(match[2]))
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None
