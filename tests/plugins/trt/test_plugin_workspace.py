"""What a plugin reserves is what its op says is enough, and is: for any sizes of the profile."""

import random
import time

import pytest
import torch

from dsv4_trt.builder.model.networks import trunk
from dsv4_trt.builder.network import Network
from dsv4_trt.errors import PluginError
from dsv4_trt.kv_layout import solve
from dsv4_trt.mapping import Mapping
from dsv4_trt.plugins.harness_plugin import NO_WORKSPACE
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.precision import Precision
from dsv4_trt.presets import PRO
from tests.plugins.graph_calls import GRAPHS, OpCall, graph_calls, library_call, sample_call
from tests.plugins.trt.plugin_case import PluginCase


def ends(call, draw):
    """A least and a largest of every run-time size."""
    most = {size: draw.randint(1, 4096) for size in call.sizes}
    return {size: draw.randint(0, n) for size, n in most.items()}, most


@pytest.mark.parametrize("name", [*GRAPHS, "sample"])
@pytest.mark.parametrize("capability", [90, 120])
def test_no_launch_of_a_profile_needs_more_than_is_reserved(create, library, name, capability):
    draw = random.Random(name)
    library.plan_for(capability)
    needed = 0
    for call in [sample_call()] if name == "sample" else graph_calls(name):
        case = PluginCase(call)
        plugin = create(case.op.name, case.fields)
        least, most = ends(call, draw)
        ranges = case.ranges(least, most)
        plugin.configure(ranges)
        reserved = plugin.workspace(ranges)
        assert reserved == library.workspace_bound(
            library_call(library, call.sized(most)), capability
        )
        for _ in range(25):
            sizes = {size: draw.randint(least[size], most[size]) for size in call.sizes}
            made = library_call(library, call.sized(sizes))
            here = library.workspace_on(made, capability, draw.randint(1, 192))
            assert here <= reserved
            needed = max(needed, here)
    library.plan_for(120)
    assert needed > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is present")
def test_without_a_gpu_and_a_plan_for_one_the_build_can_not_go_on(create, library, harness):
    case = PluginCase(next(call for call in graph_calls("pro") if call.op.name == "experts"))
    plugin = create(case.op.name, case.fields)
    ranges = case.ranges(*[dict.fromkeys(case.call.sizes, 64)] * 2)
    library.plan_for(0)
    try:
        with pytest.raises(PluginError, match=r"configurePlugin: .*without a GPU say .*plan_for"):
            plugin.configure(ranges)
        assert plugin.workspace(ranges) == NO_WORKSPACE
        assert "getWorkspaceSize: op 'experts': the current CUDA device: " in harness.messages()[0]
    finally:
        library.plan_for(120)


def test_the_whole_pro_model_is_planned_in_seconds(create, library):
    precision = Precision.official()
    layout = solve(PRO, precision.kv, precision.indexer, mtp=True)
    graph = trunk(Network("pro", PRO, Mapping(), precision, layout))
    planned = []
    for node in graph.nodes:
        values = {param: graph.values[value] for param, value in node.inputs.items()}
        inputs = {param: (value.dtype, value.shape) for param, value in values.items()}
        case = PluginCase(OpCall(op=OPS[node.op], attrs=node.attrs, inputs=inputs))
        sizes = [dict.fromkeys(case.call.sizes, size) for size in (1, 2048)]
        planned.append((create(case.op.name, case.fields), case.ranges(*sizes)))
    assert len(planned) > 1000
    begin = time.process_time()
    for plugin, ranges in planned:
        plugin.configure(ranges)
        plugin.workspace(ranges)
    assert time.process_time() - begin < 5
