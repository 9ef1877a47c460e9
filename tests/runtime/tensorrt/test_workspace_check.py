"""Workspaces are in a plan; a library whose kernels take more must not run it."""

from dataclasses import replace

import pytest

pytest.importorskip("cuda.bindings")
from dsv4_trt.errors import BundleMismatch
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.tensorrt.plan import load_plan


@pytest.fixture
def bundle(plan_dir):
    """Its trunk's plan has 100 bytes for each router, and for decodes 50."""
    opened = open_bundle(plan_dir)
    trunk = opened.record.plans["trunk"]
    routers = [node.name for node in opened.trunk.nodes if node.op == "router"]
    planned = {"decode": dict.fromkeys(routers, 50), "prefill": dict.fromkeys(routers, 100)}
    plans = opened.record.plans | {"trunk": replace(trunk, workspaces=planned)}
    return replace(opened, record=replace(opened.record, plans=plans))


@pytest.mark.parametrize("taken", [0, 49, 50])
def test_what_takes_no_more_runs(bundle, host, taken):
    host.library.workspaces = {"router": taken}
    assert load_plan(bundle, bundle.trunk, host.library)


@pytest.mark.parametrize(
    ("workspaces", "message"),
    [
        (
            {"router": 51},
            r"'layers\.0\.ffn\.router' of .* 'trunk' has 50 bytes .* takes 51: .*again",
        ),
        (
            {"experts": 1},
            r"'layers\.0\.ffn\.experts' of .* has 0 bytes of workspace, lib.* takes 1:",
        ),
    ],
)
def test_what_takes_more_is_refused(bundle, host, workspaces, message):
    host.library.workspaces = workspaces
    with pytest.raises(BundleMismatch, match=message):
        load_plan(bundle, bundle.trunk, host.library)


def test_layers_of_tensorrt_have_none_of_ours(bundle, host):
    host.library.workspaces = {"embed": 1}
    assert load_plan(bundle, bundle.trunk, host.library)
