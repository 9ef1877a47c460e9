"""What this machine has of TensorRT: bindings with a builder, and libraries with our plugins.

Neither is loaded into this process: a broken one would take it along.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dsv4_trt.errors import ConfigError, PluginError
from dsv4_trt.targets import ARCHITECTURES, TENSORRT, check_version

Findings = dict[str, Any]

TIMEOUT_S = 60  # bindings load hundreds of megabytes
_READ_BINDINGS = """
import importlib, sys
trt = importlib.import_module(sys.argv[1])
print(trt.__version__, hasattr(trt, "Builder"))
"""
_READ_LIBRARY = """
import pathlib, sys
from dsv4_trt.errors import PluginError
from dsv4_trt.plugins.library import load_library
try:
    print(load_library(pathlib.Path(sys.argv[1])).tensorrt_version)
except PluginError as error:
    sys.exit(str(error))
"""


def bindings() -> list[Findings]:
    """For each engine the module of its TensorRT, its version, and whether it can build."""
    return [_bindings(engine) for engine in TENSORRT]


def _bindings(engine: str) -> Findings:
    flavour = TENSORRT[engine]
    about = {"engine": engine, "module": flavour.module, "supported": flavour.supported}
    version: str | None = None
    builder, problem = False, ""
    if find_spec(flavour.module) is None:
        problem = "not installed"
    else:
        try:
            version, has = _run(_READ_BINDINGS, flavour.module).split()
            builder = has == "True"
            check_version(engine, version)
        except (RuntimeError, subprocess.SubprocessError) as error:
            problem = f"can not be imported: {error}"
        except (ConfigError, ValueError) as error:
            problem = str(error)
    return {**about, "version": version, "builder": builder, "problem": problem}


def plugin_libraries() -> list[Findings]:
    """Libraries that are built, or the one that is used for all, with the headers of their plugins."""
    from dsv4_trt.plugins.library_build import find_library

    if os.environ.get("DSV4_PLUGIN_LIBRARY"):
        found = {"whatever it was built for": find_library("any")}
    else:
        found = {
            name: find_library(name, plugins=True) or find_library(name) for name in ARCHITECTURES
        }
    return [_library(name, path) for name, path in found.items() if path is not None]


def _library(architecture: str, path: Path) -> Findings:
    headers: str | None = None
    try:
        headers = _run(_READ_LIBRARY, str(path)).strip() or None
        problem = "" if headers else "no TensorRT plugins: it was built without TensorRT's headers"
    except (RuntimeError, subprocess.SubprocessError) as error:
        problem = str(error)
    about = {"architecture": architecture, "library": str(path)}
    return {**about, "tensorrt_headers": headers, "problem": problem}


def headers_lack() -> str:
    """Why plugins can not be compiled: no headers of TensorRT; "" if there are some."""
    from dsv4_trt.plugins.tensorrt_headers import headers_in_environment, headers_version

    include = headers_in_environment()
    if include is None:
        return "neither TENSORRT_INCLUDE_DIR nor TENSORRT_ROOT names headers"
    try:
        headers_version(include)
    except PluginError as error:
        return str(error)
    return ""


def possible_plans(
    found: list[Findings], libraries: list[Findings], *, has_onnx: bool, has_gpu: bool
) -> list[tuple[str, bool, str]]:
    """What can be done with plans here: what, whether, and what stands in its way."""
    problem = {entry["engine"]: entry["problem"] or _no_builder(entry) for entry in found}
    unknown = "it could not be looked at"
    rtx = problem.get("tensorrt-rtx", unknown) or ("" if has_onnx else "onnx is not installed")
    full = problem.get("tensorrt", unknown) or ("" if has_gpu else "torch sees no CUDA device")
    runs_on = [library["architecture"] for library in libraries if library["tensorrt_headers"]]
    known = ", ".join(name for name in runs_on if name in ARCHITECTURES)
    named = "what DSV4_PLUGIN_LIBRARY names is " if os.environ.get("DSV4_PLUGIN_LIBRARY") else ""
    no_plugins = (
        f"{named}no library with plugins; `dsv4-trt plugins build --tensorrt_include DIR` makes one"
    )
    return [
        ("building TensorRT-RTX plans", not rtx, f"tensorrt_rtx: {rtx}"),
        ("building TensorRT plans", not full, f"tensorrt: {full}"),
        (
            "building plans that run" + (f" on {known}" if known else ""),
            bool(runs_on),
            no_plugins,
        ),
    ]


def _no_builder(entry: Findings) -> str:
    return "" if entry["builder"] else "it has no builder, its plans run and are not built"


def _run(code: str, argument: str) -> str:
    """What a Python of its own prints; `RuntimeError` with its last line if it fails."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code, argument],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIMEOUT_S,
        check=False,
        env=environment,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        died = f"its process ended with status {done.returncode}"
        raise RuntimeError(said[-1] if said and done.returncode > 0 else died)
    return done.stdout
