"""Runs `dsv4-trt plan` for tests."""

import json

from click.testing import CliRunner

from dsv4_trt.cli.main import cli

FLASH_2 = ("--preset", "flash", "--tp", 2)


def plan(*arguments):
    """Output of the command; errors surface as themselves."""
    result = CliRunner().invoke(cli, ["plan", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.output


def report(*arguments):
    return json.loads(plan(*arguments, "--json"))
