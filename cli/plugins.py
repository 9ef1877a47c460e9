"""`dsv4-trt plugins`: the kernel library of this machine."""

from __future__ import annotations

import json
import shutil
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import click

from dsv4_trt.cli.kernels import compile_kernels
from dsv4_trt.cli.options import json_option, option
from dsv4_trt.cli.published import published
from dsv4_trt.targets import ARCHITECTURES


def _architectures(
    _: click.Context, __: click.Parameter, value: str | None
) -> tuple[str, ...] | None:
    if value is None:
        return None
    named = tuple(part.strip() for part in value.split(","))
    for part in named:
        if part not in ARCHITECTURES:
            raise click.BadParameter(f"'{part}' is unknown; expected {', '.join(ARCHITECTURES)}")
    return named


@click.group()
def command() -> None:
    """Build the CUDA kernels that run on a GPU.

    \b
    Example:
      dsv4-trt plugins build
    """


@command.command()
@option(
    "--arch",
    "architectures",
    callback=_architectures,
    metavar="LIST",
    help=f"{', '.join(ARCHITECTURES)}, with commas [default: this machine's GPU].",
)
@option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Also copy the library to this file.",
)
@option(
    "--tensorrt_include",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    metavar="DIR",
    help="Headers of TensorRT 11: builds its plugins too [default: TENSORRT_INCLUDE_DIR, or include "
    "in TENSORRT_ROOT; without these, no plugins].",
)
@option("--jobs", type=click.IntRange(min=1), help="Files compiled at once [default: one a core].")
@click.option("--force", is_flag=True, help="Compile again even if it is in the cache.")
@json_option
def build(
    architectures: tuple[str, ...] | None,
    output: Path | None,
    tensorrt_include: Path | None,
    jobs: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Compile the kernel library with nvcc and keep it in the cache.

    A library is found again by a digest of its sources; `DSV4_TRT_CACHE` moves the cache. The first use of
    a GPU does this by itself.

    \b
    Example:
      dsv4-trt plugins build --arch sm_90a,sm_120a
    """
    from dsv4_trt.plugins.tensorrt_headers import headers_in_environment, headers_version

    chosen = architectures or (_this_gpu(),)
    include = tensorrt_include or headers_in_environment()
    version = headers_version(include) if include is not None else None
    with _copy_to(output) as copy:
        path = compile_kernels(chosen, tensorrt_include=include, force=force, jobs=jobs)
        if copy is not None:
            shutil.copy(path, copy)
    if as_json:
        found = {"library": str(path), "architectures": list(chosen), "tensorrt": version}
        click.echo(json.dumps(found))
        return
    click.echo(f"{path} ({path.stat().st_size:,} B) for {', '.join(chosen)}")
    click.echo(
        f"TensorRT plugins: built with the headers of TensorRT {version} in {include}"
        if version
        else "TensorRT plugins: not built; they need TensorRT's headers: --tensorrt_include DIR"
    )


def _copy_to(output: Path | None) -> AbstractContextManager[Path | None]:
    """Where a copy is to be written; a place that can not be written is refused before minutes of work."""
    if output is None:
        return nullcontext()
    output.parent.mkdir(parents=True, exist_ok=True)
    return published("--output", output)


def _this_gpu() -> str:
    from dsv4_trt.errors import ConfigError
    from dsv4_trt.runtime.open import device_architecture

    found = device_architecture()
    if found is None:
        raise ConfigError("this machine shows no GPU; name what to compile for: --arch sm_90a")
    return found
