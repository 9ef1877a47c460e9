"""The kernel library's host side, compiled for tests: the GPU is the host's memory, streams are threads."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from dsv4_trt.errors import PluginError
from dsv4_trt.plugins.library import Library
from dsv4_trt.plugins.library_build import SOURCES, find_nvcc
from dsv4_trt.plugins.table_header import table_header

HERE = Path(__file__).parent


def host_library(folder, sources=(), helpers=()):
    """The library without kernels: `sources` of csrc, and `helpers` of this folder, are in it too.

    It has no ops; a test names them in `_ops`. Skips where there is no CUDA compiler.
    """
    csrc = SOURCES / "csrc"
    files = [*csrc.glob("common/*.cpp"), csrc / "collective/communicator.cpp"]
    files += [csrc / name for name in sources]
    files += [HERE / name for name in ("late_cudart.cpp", *helpers)]
    library = Library.__new__(Library)
    library._c = ctypes.CDLL(str(compile_host(folder, "library.so", files)))
    library._c.dsv4_last_error.restype = ctypes.c_char_p
    return library


def compile_host(folder, name, files, *options):
    """A shared library of C++ files that launch nothing; skips where there is no CUDA compiler."""
    try:
        command = [find_nvcc(), "-std=c++20", "-x", "c++", "--shared", "--cudart", "none"]
    except PluginError:
        pytest.skip("no CUDA compiler")
    (folder / "op_table.h").write_text(table_header())
    command += ["-I", SOURCES / "csrc", "-I", folder, "-Xcompiler", "-fPIC,-Wall,-Wextra,-Werror"]
    subprocess.run([*command, *options, "-o", folder / name, *files], check=True)
    return folder / name
