"""The library in the registries of TensorRT-RTX and of TensorRT's lean runtime, each in a process."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from dsv4_trt.plugins.ops import OPS
from tests.plugins.graph_calls import all_calls

ROOT = Path(__file__).parents[3]
SAID = ("'weight_format' is missing", "is 'fp9'; expected one of fp8, bf16", "'eps' is not known")


@pytest.mark.parametrize("package", ["tensorrt_rtx", "tensorrt_lean"])
def test_the_library_loads_and_makes_plugins(plugin_library, package):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    command = [sys.executable, "-m", "tests.plugins.trt.registry_check", package, plugin_library]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["loaded"]
    assert report["creators"] == {op: op for op in OPS}
    assert not report["other_namespace"]
    for phase in ("BUILD", "RUNTIME"):
        assert report[phase] == [len(all_calls()), []]
    # to the logger, where the registry knows one
    said = report["messages"] if report["has_runtime"] else done.stderr.splitlines()
    lines = [line for line in said if line.startswith("plugin 'linear' for 'wrong' can not be ")]
    assert len(lines) == len(SAID)
    for line, expected in zip(lines, SAID, strict=True):
        assert expected in line
