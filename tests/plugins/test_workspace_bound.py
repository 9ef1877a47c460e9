"""Workspace reserved once is enough for every call that comes: any sizes up to the largest, any device."""

import random

import pytest
import torch

from dsv4_trt.errors import PluginError
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.planned_workspaces import planned_workspaces
from tests.plugins.graph_calls import (
    GRAPHS,
    OpCall,
    all_calls,
    graph,
    graph_calls,
    library_call,
)

CAPABILITIES = (90, 100, 103, 120, 121)
CALLS = all_calls()
NEEDING = ("linear", "grouped_linear", "experts", "shared_expert", "router", "index_topk")
NEEDING += ("sparse_attention", "sample", "all_reduce", "all_gather")
NEEDED = [name for name, call in CALLS.items() if call.op.name in NEEDING]
MOST = {"num_tokens": 16384, "num_table_rows": 512, "num_seqs_plus_1": 513}


def most(name):
    """The largest that a run-time size is in these tests."""
    if name.startswith("num_pages"):
        return 1 << 20
    return MOST.get(name, 4096 if name.startswith("pages.") else 512)


def smaller(draw, largest):
    """Sizes at most those of `largest`, all orders of magnitude alike, often at an end."""
    return {
        name: size if draw.random() < 0.2 else int((size + 1) ** draw.random()) - draw.randint(0, 1)
        for name, size in largest.items()
    }


def test_every_op_that_needs_workspace_is_among_the_calls(library):
    needing = set()
    for call in CALLS.values():
        largest = call.sized({name: most(name) for name in call.sizes})
        if any(library.workspace_bound(library_call(library, largest), c) for c in CAPABILITIES):
            needing.add(call.op.name)
    assert needing == set(NEEDING)


@pytest.mark.parametrize("name", NEEDED)
def test_no_call_needs_more_than_its_bound(library, name):
    call, draw = CALLS[name], random.Random(0)
    for capability in CAPABILITIES:
        largest = {size: draw.randint(1, most(size)) for size in call.sizes}
        bound = library.workspace_bound(library_call(library, call.sized(largest)), capability)
        for _ in range(60):
            sizes = smaller(draw, largest)
            multiprocessors = draw.randint(1, 192)
            made = library_call(library, call.sized(sizes))
            needed = library.workspace_on(made, capability, multiprocessors)
            assert needed <= bound, (capability, multiprocessors, sizes, largest)


@pytest.mark.parametrize("capability", [90, 120])
@pytest.mark.parametrize("name", [n for n in NEEDED if n.startswith("pro-")])
def test_a_bound_is_little_more_than_some_call_needs(library, name, capability):
    call, draw = CALLS[name], random.Random(0)
    largest = {size: most(size) for size in call.sizes}
    bound = library.workspace_bound(library_call(library, call.sized(largest)), capability)
    needed = max(
        library.workspace_on(made, capability, multiprocessors)
        for _ in range(300)
        for made in [library_call(library, call.sized(smaller(draw, largest)))]
        for multiprocessors in (draw.randint(1, 192), 192)
    )
    assert bound <= 1.5 * needed


@pytest.mark.parametrize(("capability", "multiprocessors"), [(89, 1), (0, 1), (90, 0), (90, 193)])
def test_a_device_that_there_is_not_is_refused(library, capability, multiprocessors):
    made = library_call(library, CALLS["sample"].sized(dict.fromkeys(CALLS["sample"].sizes, 1)))
    with pytest.raises(PluginError, match=r"compute capability \d+; expected 90|expected 1 to 192"):
        library.workspace_on(made, capability, multiprocessors)


def test_what_is_planned_for_stays_until_it_is_taken_back(library):
    call = next(
        call
        for name, call in CALLS.items()
        if name.startswith("pro-") and call.op.name == "experts"
    )
    made = library_call(library, call.sized({name: most(name) for name in call.sizes}))
    bounds = {capability: library.workspace_bound(made, capability) for capability in (90, 120)}
    assert bounds[90] > bounds[120]
    with pytest.raises(
        PluginError, match="compute capability 80; expected 90, 100, 103, 120 or 121"
    ):
        library.plan_for(80)
    try:
        for capability, expected in bounds.items():
            library.plan_for(capability)
            assert library.workspace_bound(made) == expected
    finally:
        library.plan_for(0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is present")
def test_without_a_gpu_a_plan_must_say_what_it_is_for(library):
    made = library_call(library, CALLS["sample"].sized(dict.fromkeys(CALLS["sample"].sizes, 1)))
    with pytest.raises(PluginError, match=r"without a GPU say .* dsv4_plan_for\(120\)"):
        library.workspace_bound(made)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("capability", [90, 120])
def test_what_a_graph_s_plugins_plan_for_is_the_bound_of_each_call(library, name, capability):
    largest = {size: most(size) for call in graph_calls(name) for size in call.sizes}
    expected = {}
    for node in graph(name).nodes:
        values = {param: graph(name).values[value] for param, value in node.inputs.items()}
        inputs = {param: (value.dtype, value.shape) for param, value in values.items()}
        call = OpCall(op=OPS[node.op], attrs=node.attrs, inputs=inputs).sized(largest)
        bound = library.workspace_bound(library_call(library, call), capability)
        expected |= {node.name: bound} if bound else {}
    assert expected
    assert planned_workspaces(library, graph(name), largest, capability) == expected
