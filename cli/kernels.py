"""Compiling kernels with progress: when asked to, or when a command meets a GPU that has none yet."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsv4_trt.cli.progress import is_shown, progress

if TYPE_CHECKING:
    from dsv4_trt.runtime.bundle import Bundle


def compile_kernels(
    architectures: Sequence[str],
    *,
    tensorrt_include: Path | None = None,
    force: bool = False,
    jobs: int | None = None,
) -> Path:
    """The library for these architectures, from the cache or compiled now; see `build_library`."""
    from dsv4_trt.plugins.library_build import (
        LOG_FILE,
        build_library,
        library_path,
        num_sources,
    )

    target = library_path(architectures, tensorrt_include)
    if not is_shown() and (force or not target.is_file()):  # no bar: minutes of silence
        click.echo(f"the compiler's output goes to {target.with_name(LOG_FILE)}", err=True)
    shown = 0
    description = f"compiling for {', '.join(architectures)}"
    with progress(
        description, num_sources(plugins=tensorrt_include is not None), unit="files"
    ) as advance:

        def step(done: int) -> None:
            nonlocal shown
            advance(done - shown)
            shown = done

        return build_library(
            architectures,
            tensorrt_include=tensorrt_include,
            force=force,
            jobs=jobs,
            progress=step,
        )


def prepare_kernels(bundle: Bundle, device: str) -> None:
    """Compile what the bundle's GPU lacks, and say so: it takes minutes, once. A CPU needs nothing."""
    from dsv4_trt.plugins.library_build import find_library
    from dsv4_trt.plugins.tensorrt_headers import needed_headers
    from dsv4_trt.runtime.open import device_architecture, device_for

    if device_for(bundle, device) != "cuda":
        return
    import_module("dsv4_trt.runtime.cuda.driver")  # a package that is missing is said first
    architecture = device_architecture()
    assert architecture is not None, "there is a GPU"
    plugins = bundle.record is not None
    if find_library(architecture, plugins=plugins) is None:
        include = needed_headers() if plugins else None
        click.echo(
            f"compiling kernels for {architecture}: takes minutes, once; `dsv4-trt plugins build` "
            "does it ahead",
            err=True,
        )
        compile_kernels((architecture,), tensorrt_include=include)
