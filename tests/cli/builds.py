"""Runs `dsv4-trt build` for tests, with no plugin library but one that a test names."""

from click.testing import CliRunner

from dsv4_trt.cli.main import cli

DUMMY = ("--preset", "tiny", "--dummy-weights")
RTX = ("--engine", "tensorrt-rtx")


def build(*arguments, cache, **environment):
    """The result of the command; errors surface as themselves. `cache` is a folder without libraries."""
    environment = {"DSV4_TRT_CACHE": str(cache), "DSV4_PLUGIN_LIBRARY": None} | environment
    result = CliRunner().invoke(cli, ["build", *map(str, arguments)], env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
