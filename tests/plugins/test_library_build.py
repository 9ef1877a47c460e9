"""Building the kernel library: what is found, what is refused, what is left behind."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dsv4_trt.errors import PluginError
from dsv4_trt.plugins import library_build
from dsv4_trt.plugins.library_build import (
    HARNESS_FILE,
    LIBRARY_FILE,
    build_library,
    find_library,
    find_nvcc,
    library_path,
    num_sources,
)
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.schema_header import schema_header
from dsv4_trt.plugins.table_header import table_header
from dsv4_trt.plugins.tensorrt_headers import headers_in_environment


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A cache of its own, and a PATH with a `cmake` and an `nvcc` that tests write."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    monkeypatch.setenv("DSV4_TRT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{bin_dir}:/usr/bin:/bin")
    # a virtual environment's own cmake would come first
    monkeypatch.setattr(library_build, "_search_path", lambda: os.environ["PATH"])
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("DSV4_PLUGIN_LIBRARY", raising=False)

    def write(name, script):
        path = bin_dir / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    write("nvcc", "exit 0")
    return write


CMAKE = """
if [ "$1" = --build ]; then
  echo '[1/4] Writing the op table'; echo '[2/4] Building CUDA object a'
  echo '[3/4] Building CXX object b'; echo '[4/4] Linking'; echo library > "$2/libdsv4_plugins.so"
fi
"""


def test_a_build_is_cached_and_reports_progress(tools):
    tools("cmake", CMAKE)
    seen = []
    path = build_library(("sm_90a",), progress=seen.append)
    assert path == library_path(("sm_90a",)) == find_library("sm_90a")
    assert path.read_text() == "library\n"
    assert seen == [1, 2]
    tools("cmake", "exit 1")
    assert build_library(("sm_90a",)) == path
    assert sorted(file.name for file in path.parent.iterdir()) == ["build.log", LIBRARY_FILE]
    with pytest.raises(PluginError):
        build_library(("sm_90a",), force=True)
    assert path.read_text() == "library\n"


def test_a_failed_build_shows_the_compiler_and_leaves_no_library(tools):
    tools("cmake", '[ "$1" = --build ] && echo "x.cu(3): error: no" && exit 2; exit 0')
    with pytest.raises(PluginError, match=r"status 2.*build\.log.*\n.*x\.cu\(3\): error: no"):
        build_library(("sm_90a",))
    assert find_library("sm_90a") is None
    folder = library_path(("sm_90a",)).parent
    assert [file.name for file in folder.iterdir()] == ["build.log"]


def test_other_architectures_are_other_libraries(tools):
    tools("cmake", CMAKE)
    assert build_library(("sm_90a",)) != build_library(("sm_120a",))
    assert find_library("sm_100a") is None


def test_a_library_of_several_architectures_serves_each(tools):
    tools("cmake", CMAKE)
    path = build_library(("sm_120a", "sm_90a", "sm_90a"))
    assert path == build_library(("sm_90a", "sm_120a"))
    assert find_library("sm_90a") == find_library("sm_120a") == path
    alone = build_library(("sm_90a",))
    assert find_library("sm_90a") == alone != path


def test_of_two_builds_at_once_one_compiles(tools, tmp_path):
    tools("cmake", f'[ "$1" = --build ] && echo >> {tmp_path}/builds; sleep 0.2\n{CMAKE}')
    with ThreadPoolExecutor(2) as both:
        paths = list(both.map(build_library, [("sm_90a",)] * 2))
    assert paths[0] == paths[1] == find_library("sm_90a")
    assert (tmp_path / "builds").read_text() == "\n"


def test_what_a_killed_build_left_goes(tools):
    tools("cmake", CMAKE)
    left = library_path(("sm_90a",)).parent / "build-killed"
    left.mkdir(parents=True)
    (left / "half.o").write_bytes(b"half")
    path = build_library(("sm_90a",))
    assert sorted(file.name for file in path.parent.iterdir()) == ["build.log", LIBRARY_FILE]


def test_output_that_is_no_text_is_no_reason_to_fail(tools):
    tools("cmake", CMAKE.replace("echo '[1/4]", "printf '\\377\\n'; echo '[1/4]"))
    log = build_library(("sm_90a",)).parent / "build.log"
    assert "\N{REPLACEMENT CHARACTER}" in log.read_text(encoding="utf-8")


@pytest.mark.parametrize("architecture", ["sm_80", "90a", ""])
def test_unknown_architectures_are_refused(tools, architecture):
    with pytest.raises(PluginError, match="expected sm_90a, sm_100a"):
        build_library((architecture,))


def test_a_missing_compiler_is_said_clearly(tools, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(PluginError, match=r"no CUDA compiler at .*nowhere/bin/nvcc.*CUDA_HOME"):
        find_nvcc()


def test_a_missing_cmake_is_said_clearly(tools, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(PluginError, match=r"'cmake' is not installed.*dsv4-trt\[cuda\]"):
        build_library(("sm_90a",))


def test_a_named_library_is_taken(tools, monkeypatch, tmp_path):
    monkeypatch.setenv("DSV4_PLUGIN_LIBRARY", str(tmp_path / "mine.so"))
    with pytest.raises(PluginError, match=r"DSV4_PLUGIN_LIBRARY names .*mine\.so.*unset"):
        find_library("sm_90a")
    (tmp_path / "mine.so").write_bytes(b"")
    assert find_library("sm_90a") == tmp_path / "mine.so"


def test_the_digest_follows_the_op_table(monkeypatch):
    before = library_path()
    monkeypatch.setattr(library_build, "table_header", lambda: "other")
    assert library_path() != before


def test_the_header_names_every_op_tensor_and_attribute():
    header = table_header()
    for op in OPS.values():
        start = header.index(f"namespace {op.name} {{")
        line = header[start : header.index("\n", start)]
        for names in (op.inputs, op.outputs):
            assert ", ".join(p.name for p in names) in line
        assert ", ".join(op.attrs) in line


def test_sources_are_counted():
    def count(folder):
        found = [file for _, _, files in os.walk(library_build.SOURCES / folder) for file in files]
        return sum(file.endswith((".cu", ".cpp")) for file in found)

    everything, plugins = count("csrc"), count("csrc/trt")
    assert num_sources() == everything - plugins > 20
    assert num_sources(plugins=True) == everything + count("harness")
    assert plugins > 5


def headers(folder, version="11.1.0"):
    """A folder as if with TensorRT's headers of a version."""
    parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."), strict=False)
    lines = [f"#define TRT_{part}_ENTERPRISE {number}" for part, number in parts]
    folder.mkdir(exist_ok=True)
    (folder / "NvInferVersion.h").write_text("\n".join([*lines, "#define NV_TENSORRT_MAJOR x"]))
    return folder


WITH_PLUGINS = CMAKE.replace(
    "echo library >", 'echo harness > "$2/libdsv4_plugin_harness.so"; echo plugins >'
)


def test_a_library_with_plugins_serves_who_wants_none_and_not_the_other_way_round(tools, tmp_path):
    tools("cmake", CMAKE)
    plain = build_library(("sm_90a",))
    assert find_library("sm_90a", plugins=True) is None
    tools("cmake", f'echo "$@" >> {tmp_path}/asked\n{WITH_PLUGINS}')
    include = headers(tmp_path / "include")
    path = build_library(("sm_90a",), tensorrt_include=include)
    assert path == library_path(("sm_90a",), include) == find_library("sm_90a", plugins=True)
    assert f"-DTENSORRT_INCLUDE_DIR={include}" in (tmp_path / "asked").read_text()
    assert path.with_name(HARNESS_FILE).read_text() == "harness\n"
    assert find_library("sm_90a") == plain
    plain.unlink()
    assert find_library("sm_90a") == build_library(("sm_90a",)) == path
    assert build_library(("sm_90a",), force=True) == plain
    assert "-DTENSORRT_INCLUDE_DIR= " in (tmp_path / "asked").read_text()


def test_of_several_versions_of_headers_the_newest_is_found(tools, tmp_path):
    tools("cmake", WITH_PLUGINS)
    paths = [
        build_library(("sm_90a",), tensorrt_include=headers(tmp_path / "include", version))
        for version in ("11.2.0", "11.10.1", "11.9.3")
    ]
    assert len(set(paths)) == 3
    assert find_library("sm_90a", plugins=True) == paths[1]


@pytest.mark.parametrize(
    ("version", "message"),
    [("10.9.0", "version '10.9.0'.*expected headers of TensorRT 11"), ("11", "version '11'")],
)
def test_headers_of_another_version_are_refused(tools, tmp_path, version, message):
    with pytest.raises(PluginError, match=message):
        build_library(("sm_90a",), tensorrt_include=headers(tmp_path / "include", version))


def test_a_folder_without_headers_is_refused(tools, tmp_path):
    with pytest.raises(PluginError, match=r"NvInferVersion\.h: No such file.*--tensorrt_include"):
        build_library(("sm_90a",), tensorrt_include=tmp_path)


def test_the_environment_names_headers(monkeypatch, tmp_path):
    for name in ("TENSORRT_INCLUDE_DIR", "TENSORRT_ROOT"):
        monkeypatch.delenv(name, raising=False)
    assert headers_in_environment() is None
    monkeypatch.setenv("TENSORRT_ROOT", "/opt/tensorrt")
    assert headers_in_environment() == Path("/opt/tensorrt/include")
    monkeypatch.setenv("TENSORRT_INCLUDE_DIR", "/usr/include/tensorrt")
    assert headers_in_environment() == Path("/usr/include/tensorrt")


def test_the_schema_header_has_every_op():
    header = schema_header()
    for op in OPS.values():
        assert f'\n    {{"{op.name}", {{{len(op.inputs)}, ' in header


def test_a_user_without_a_home_is_told_of_the_cache(monkeypatch):
    """As in a container that runs as a number."""
    for name in ("DSV4_TRT_CACHE", "XDG_CACHE_HOME", "DSV4_PLUGIN_LIBRARY", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    with pytest.raises(PluginError, match=r"has no home .* name a folder by DSV4_TRT_CACHE"):
        find_library("sm_120a")
