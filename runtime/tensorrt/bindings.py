"""TensorRT in this process: its bindings, one runtime, and our plugins in its registry."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from dsv4_trt.errors import EngineFault, MissingDependency, PluginError
from dsv4_trt.plugins.library import Library
from dsv4_trt.runtime.tensorrt.log import Log
from dsv4_trt.targets import TENSORRT, check_version


@dataclass(frozen=True, slots=True, eq=False)
class Bindings:
    """The module `trt` of an engine's TensorRT, with the runtime that loads its plans."""

    engine: str
    trt: Any
    log: Log
    runtime: Any


@cache
def load_bindings(engine: str) -> Bindings:
    """The bindings of engine "tensorrt" or "tensorrt-rtx", made once: TensorRT keeps its first logger.

    Raises `MissingDependency`, or `ConfigError` for a version that this one was not written for.
    """
    flavour = TENSORRT[engine]
    try:
        trt = import_module(flavour.module)
    except ImportError as error:
        raise MissingDependency(
            flavour.package, engine, f"running plans of engine '{engine}' ({error})"
        ) from error
    check_version(engine, trt.__version__)
    log = Log(trt)
    try:
        runtime = trt.Runtime(log.logger)
    except (RuntimeError, TypeError) as error:  # what the bindings raise for a null pointer
        raise EngineFault(f"TensorRT can not start: {log.take_errors()}") from error
    runtime.engine_host_code_allowed = False  # plugins come from our library, never from a plan
    return Bindings(engine, trt, log, runtime)


@cache
def register_plugins(bindings: Bindings, library: Library) -> None:
    """Load the library's plugins into TensorRT's registry, once; raises `PluginError`."""
    library.check_plugins()
    registry = bindings.trt.get_plugin_registry()
    if registry.load_library(str(library.path)) is None:
        raise PluginError(
            f"TensorRT can not load the plugins of {library.path}: {bindings.log.take_errors()}"
        )
