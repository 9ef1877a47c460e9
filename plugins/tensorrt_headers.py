"""The headers of TensorRT, which plugins are built with; the library itself is not needed."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dsv4_trt.errors import PluginError

_VERSION_FILE = "NvInferVersion.h"
_MAJOR = 11


def headers_in_environment() -> Path | None:
    """The folder that `TENSORRT_INCLUDE_DIR` names, or `include` of `TENSORRT_ROOT`; None without both."""
    named = os.environ.get("TENSORRT_INCLUDE_DIR")
    root = os.environ.get("TENSORRT_ROOT")
    return Path(named) if named else Path(root, "include") if root else None


def needed_headers() -> Path:
    """`headers_in_environment`; raises `PluginError` if nothing names them."""
    found = headers_in_environment()
    if found is None:
        raise PluginError(
            "no kernel library with TensorRT plugins is there for this GPU, and nothing names TensorRT's "
            "headers to compile one with; set TENSORRT_INCLUDE_DIR to their folder, or run `dsv4-trt "
            "plugins build --tensorrt_include DIR`"
        )
    return found


def headers_version(include: Path) -> str:
    """The version of the headers in a folder, as "11.1.0".

    Raises `PluginError` if there are none, or they are of a version that the plugins are not made for.
    """
    path = include / _VERSION_FILE
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise PluginError(
            f"{include} has no headers of TensorRT: {path.name}: {error.strerror}; name the folder with "
            "NvInferRuntime.h (TENSORRT_INCLUDE_DIR, --tensorrt_include); the headers are in TensorRT's "
            "packages and in its open source repository"
        ) from error
    numbers = [
        re.search(rf"#define (?:TRT_{part}_ENTERPRISE|NV_TENSORRT_{part}) +(\d+)", text)
        for part in ("MAJOR", "MINOR", "PATCH")
    ]
    version = ".".join(found[1] for found in numbers if found)
    if version.count(".") != 2 or not version.startswith(f"{_MAJOR}."):
        raise PluginError(
            f"{path} says version '{version}' of TensorRT; expected headers of TensorRT {_MAJOR}"
        )
    return version
