"""The library in the registries of TensorRT-RTX and of TensorRT's lean runtime, each in a process."""

import json

import pytest

from dsv4_trt.plugins.ops import OPS
from tests.plugins.graph_calls import all_calls
from tests.plugins.trt.tensorrt_process import PACKAGES, run_with

SAID = ("'weight_format' is missing", "is 'fp9'; expected one of fp8, bf16", "'eps' is not known")


@pytest.mark.parametrize("package", PACKAGES)
def test_the_library_loads_and_makes_plugins(plugin_library, package):
    done = run_with(package, "tests.plugins.trt.registry_check", plugin_library)
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
