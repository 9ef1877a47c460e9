"""Kernels that a machine has not compiled yet: the first use does it, and tells who waits."""

import logging
from pathlib import Path

import pytest

from dsv4_trt.plugins import library_build
from dsv4_trt.plugins.library_build import LIBRARY_FILE, library_path

pytest.importorskip("cuda.bindings")

from dsv4_trt.errors import PluginError
from dsv4_trt.runtime.cuda import open as cuda_open


def test_compiling_on_first_use_is_said_once(tmp_path, monkeypatch, caplog):
    said = []

    def run_cmake(folder, nvcc, architectures, tensorrt_include, jobs, log, progress):
        said.append(caplog.messages.copy())
        log.write_text("a compiler's output")
        Path(folder, LIBRARY_FILE).write_bytes(b"a library")

    monkeypatch.setenv("DSV4_TRT_CACHE", str(tmp_path))
    monkeypatch.delenv("DSV4_PLUGIN_LIBRARY", raising=False)
    monkeypatch.setattr(library_build, "find_nvcc", lambda: Path("nvcc"))
    monkeypatch.setattr(library_build, "_run_cmake", run_cmake)
    monkeypatch.setattr(cuda_open, "device_architecture", lambda: "sm_90a")
    monkeypatch.setattr(cuda_open, "load_library", lambda path: path)
    assert [cuda_open.device_library() for _ in range(2)] == [library_path(("sm_90a",))] * 2

    [record] = caplog.records
    log = library_path(("sm_90a",)).parent / "build.log"
    assert log.read_text() == "a compiler's output"
    assert record.getMessage() == (
        f"compiling kernels for sm_90a: takes minutes, once; the compiler's output goes to {log}"
    )
    assert said == [[record.getMessage()]]  # before it began, not after
    assert record.name.startswith("dsv4_trt.")
    assert record.levelno >= logging.lastResort.level  # shown where no logging is configured


def test_plugins_are_not_compiled_without_headers(tmp_path, monkeypatch):
    """Nor is a library without plugins, for minutes, that could not be used."""
    monkeypatch.setenv("DSV4_TRT_CACHE", str(tmp_path))
    for name in ("DSV4_PLUGIN_LIBRARY", "TENSORRT_INCLUDE_DIR", "TENSORRT_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(library_build, "_run_cmake", None)
    monkeypatch.setattr(cuda_open, "device_architecture", lambda: "sm_90a")
    with pytest.raises(PluginError, match=r"TENSORRT_INCLUDE_DIR.*--tensorrt_include"):
        cuda_open.device_library(plugins=True)
