"""`dsv4-trt plugins`: where the library is copied to, and what stops before anything is compiled."""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
from click.testing import CliRunner

from dsv4_trt.cli.kernels import prepare_kernels
from dsv4_trt.cli.plugins import command
from dsv4_trt.errors import ConfigError
from dsv4_trt.mapping import Mapping
from dsv4_trt.plugins import library_build
from dsv4_trt.runtime import open as runtime_open

DRIVER = "dsv4_trt.runtime.cuda.driver"


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A cache that has a library; the list of what was asked for."""
    asked = []
    library = tmp_path / "cache" / "libdsv4_plugins.so"
    library.parent.mkdir()
    library.write_bytes(b"a library")

    def build_library(architectures, **_):
        asked.append(architectures)
        return library

    monkeypatch.setattr(library_build, "build_library", build_library)
    return asked


def run(*arguments):
    return CliRunner().invoke(command, ["build", *map(str, arguments)])


def test_the_copy_replaces_what_was_there(tmp_path, built):
    output = tmp_path / "image" / "lib.so"
    output.parent.mkdir()
    output.write_bytes(b"an older and longer library")
    result = run("--arch", "sm_90a, sm_120a", "--output", output)
    assert result.exit_code == 0, result.output
    assert built == [("sm_90a", "sm_120a")]
    assert [(file.name, file.read_bytes()) for file in output.parent.iterdir()] == [
        ("lib.so", b"a library")
    ]


def test_a_copy_that_fails_leaves_what_was_there(tmp_path, built, monkeypatch):
    def half(source, target):
        target.write_bytes(b"a li")
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr("shutil.copy", half)
    output = tmp_path / "lib.so"
    output.write_bytes(b"older")
    assert isinstance(run("--arch", "sm_90a", "--output", output).exception, OSError)
    assert output.read_bytes() == b"older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "lib.so"]


@pytest.mark.parametrize("place", ["file/lib.so", "x" * 300])
def test_a_place_that_can_not_be_written_is_refused_before_the_work(tmp_path, built, place):
    (tmp_path / "file").write_bytes(b"a file")
    result = run("--arch", "sm_90a", "--output", tmp_path / place)
    assert isinstance(result.exception, OSError | ConfigError)
    assert built == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "file"]


def test_a_folder_as_output_is_refused_before_the_work(tmp_path, built):
    result = run("--arch", "sm_90a", "--output", tmp_path)
    assert result.exit_code == 2
    assert "is a directory" in result.output
    assert built == []


def test_plugins_are_built_with_the_headers_that_are_named(tmp_path, built, monkeypatch):
    monkeypatch.delenv("TENSORRT_ROOT", raising=False)
    monkeypatch.delenv("TENSORRT_INCLUDE_DIR", raising=False)
    assert "TensorRT plugins: not built" in run("--arch", "sm_90a").output
    version = "".join(
        f"#define TRT_{part}_ENTERPRISE {number}\n"
        for part, number in (("MAJOR", 11), ("MINOR", 1), ("PATCH", 0))
    )
    (tmp_path / "NvInferVersion.h").write_text(version)
    by_option = run("--arch", "sm_90a", "--tensorrt_include", tmp_path)
    monkeypatch.setenv("TENSORRT_INCLUDE_DIR", str(tmp_path))
    for result in (by_option, run("--arch", "sm_90a")):
        assert f"built with the headers of TensorRT 11.1.0 in {tmp_path}" in result.output
    assert json.loads(run("--arch", "sm_90a", "--json").stdout)["tensorrt"] == "11.1.0"


def test_a_gpu_without_kernels_gets_them_and_it_is_said(built, monkeypatch, capsys):
    found = {"sm_90a": None}
    bundle = SimpleNamespace(path="e", mapping=Mapping(), record=None)
    monkeypatch.setattr(runtime_open, "resolve_device", lambda device: device)
    monkeypatch.setattr(runtime_open, "device_architecture", lambda: "sm_90a")
    monkeypatch.setattr(library_build, "find_library", lambda name, **_: found[name])
    monkeypatch.setitem(sys.modules, DRIVER, None)  # as where cuda-python is not installed
    prepare_kernels(bundle, "cpu")
    with pytest.raises(ImportError):
        prepare_kernels(bundle, "cuda")
    monkeypatch.setitem(sys.modules, DRIVER, ModuleType(DRIVER))
    assert built == []
    prepare_kernels(bundle, "cuda")
    assert built == [("sm_90a",)]
    several = SimpleNamespace(path="e", mapping=Mapping(tp_size=2), record=None)
    with pytest.raises(ConfigError, match="2 ranks"):
        prepare_kernels(several, "cuda")
    assert len(built) == 1
    assert "compiling kernels for sm_90a" in capsys.readouterr().err
    found["sm_90a"] = "library"
    prepare_kernels(bundle, "cuda")
    assert len(built) == 1
    assert capsys.readouterr().err == ""


def test_an_unknown_architecture_is_a_wrong_command_line(built):
    result = run("--arch", "sm_90a,sm_90")
    assert result.exit_code == 2
    assert "'sm_90' is unknown; expected sm_90a, sm_100a" in result.output
    assert built == []
