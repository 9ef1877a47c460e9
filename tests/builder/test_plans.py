"""Plans that the real TensorRT-RTX builds, on a machine without a GPU."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from dsv4_trt.builder.lowering.layers import Kind, lower
from dsv4_trt.builder.lowering.process import run_job
from dsv4_trt.contract import BUILD_LOG_FILE, engine_file
from dsv4_trt.dtypes import DType
from dsv4_trt.errors import BuildError, ConfigError
from dsv4_trt.graph import ValueKind
from dsv4_trt.plan_record import BuildRecord
from dsv4_trt.plugins.library_build import find_library
from tests.builder.networks import BUILD, build, graphs, job

CASES = [
    ("tiny", "trunk"),
    ("tiny", "mtp"),
    ("tiny-tp2", "trunk"),
    ("flash-4", "trunk"),
    ("pro-4", "trunk"),
]


@pytest.fixture(scope="module", params=CASES, ids=["-".join(case) for case in CASES])
def case(request, tmp_path_factory):
    """(graph, what was recorded, the folder of plan and log)."""
    model, part = request.param
    folder = tmp_path_factory.mktemp("plan")
    return graphs(model)[0][part], build(model, part, folder), folder


def test_a_plan_is_written_and_small(case):
    graph, plan, folder = case
    data = (folder / engine_file(0, graph.name)).read_bytes()
    assert plan.nbytes == len(data) < 4_000_000
    assert data[:4] == b"vtrt"
    assert plan.peak_bytes < 1 << 30


def test_tensorrt_holds_every_plugin_with_its_attributes(case):
    graph, plan, _ = case
    expected = [layer for layer in lower(graph).layers if layer.kind is Kind.PLUGIN]
    found = {layer.name: layer for layer in plan.layers if layer.op is not None}
    assert Counter(layer.op for layer in expected) == plan.num_plugins
    for layer in expected:
        attrs = found[layer.name].attrs
        assert attrs.keys() == layer.attrs.keys()
        for name, value in layer.attrs.items():
            same = attrs[name] == value  # floats are fp32 to a plugin, as to a kernel
            assert same or attrs[name] == float(np.float32(value)), (layer.name, name)
        assert found[layer.name].inputs == layer.inputs
        assert found[layer.name].outputs == tuple(tensor.name for tensor in layer.outputs)


def test_tensorrt_holds_every_alias(case):
    graph, plan, folder = case
    expected = {
        node.outputs[to]: node.inputs[source]
        for node in graph.nodes
        for to, source in node.aliases.items()
    }
    found: dict[str, str] = {}
    for layer in plan.layers:
        found |= layer.aliases
    assert found == expected
    assert len(expected) >= len(graph.of_kind(ValueKind.KV))
    assert "nserting cop" not in (folder / BUILD_LOG_FILE).read_text()


def test_the_plan_s_inputs_have_the_types_and_profiles_that_were_asked_for(case):
    """As TensorRT lists them, when it is done."""
    _, plan, folder = case
    pattern = re.compile(
        r"Name: (\S+), IOMode: Input, DataType: (\w+), Dimensions: \[([-\d,]+)\].*?"
        r"ProfileInfo: \[(.*)\]$",
        re.M,
    )
    listed = {m[1]: m for m in pattern.finditer((folder / BUILD_LOG_FILE).read_text())}
    assert set(listed) == {tensor.name for tensor in plan.inputs}
    names = {"Float": "FLOAT", "BFloat16": "BF16", "Int32": "INT32", "Int8": "INT8"}
    for tensor in plan.inputs:
        line = listed[tensor.name]
        assert names[line[2]] == tensor.dtype
        shapes = re.findall(r"(Min|Opt|Max)Shape: \[([\d,]+)\]", line[4])
        assert len(shapes) == 3 * len(plan.profiles)
        for index, profile in enumerate(plan.profiles):
            for at in range(3):
                expected = [d if isinstance(d, int) else profile.sizes[d][at] for d in tensor.shape]
                found = [int(size) for size in shapes[3 * index + at][1].split(",")]
                assert found == expected, (tensor.name, profile.name)


def test_independent_branches_run_on_streams_of_their_own(case):
    graph, plan, _ = case
    assert 1 < plan.num_streams <= 3
    assert set(plan.stream_of.values()) <= set(range(plan.num_streams))
    assert len(plan.stream_of) >= len(graph.nodes)


def test_the_only_kernels_besides_plugins_are_the_native_layers(case):
    graph, plan, _ = case
    native = [layer for layer in lower(graph).layers if layer.kind is not Kind.PLUGIN]
    assert bool(plan.device_code) == bool(native)


def test_a_record_survives_json(case):
    _, plan, _ = case
    record = BuildRecord(
        engine="tensorrt-rtx",
        target="sm_120a",
        tensorrt_version="1.7.1.116",
        plugins="",
        plans={plan.graph: plan},
    )
    assert BuildRecord.from_json(record.to_json()) == record
    assert not record.is_runnable


def test_another_target_gives_another_plan(tmp_path):
    plans = []
    for target in BUILD_TARGETS:
        build("tiny", "mtp", tmp_path, target=target)
        plans.append((tmp_path / engine_file(0, "mtp")).read_bytes())
    assert plans[0] != plans[1]


BUILD_TARGETS = ("sm_120a", "sm_121a")


def test_a_pool_that_tensorrt_would_copy_is_refused(tmp_path):
    """Two plugins write one pool version in place. `Graph.check` refuses such a graph before TensorRT."""
    _refused(tmp_path, "insert", "kv.swa.0", "copies a KV pool instead of writing in place")


def test_a_crash_of_tensorrt_is_an_error(tmp_path):
    """One plugin writes a pool version in place and another reads it: TensorRT-RTX 1.7 does not survive."""
    _refused(tmp_path, "indexer.topk", "kv.indexer.1", "ended by SIG")


def _refused(folder, node, pool, message):
    graph, layout = graphs("tiny")[0]["trunk"], graphs("tiny")[1]
    nodes = [*graph.nodes]
    at = next(i for i, n in enumerate(nodes) if n.name == f"layers.1.attn.{node}")
    nodes[at] = replace(nodes[at], inputs={**nodes[at].inputs, "pool": pool})
    broken = replace(graph, nodes=nodes)
    with pytest.raises(BuildError, match="has one consumer"):
        broken.check()
    with pytest.raises(BuildError, match=message):
        run_job(job(broken, layout), folder)
    assert not list(folder.glob("*.engine"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": DType.F32}, "'weight' of plugin 'linear' is FLOAT; expected BF16"),
        ({"shape": (129280, 255)}, "'in_features' of input 'weight' of plugin 'linear' is 255"),
        ({"shape": (129280, 256, 1)}, "'weight' of plugin 'linear' has 3 dimensions; expected 2"),
    ],
)
def test_what_a_plugin_refuses_is_said(tmp_path, change, message):
    graph, layout = graphs("tiny")[0]["trunk"], graphs("tiny")[1]
    weight = replace(graph.values["head.weight"], **change)
    broken = replace(graph, values={**graph.values, "head.weight": weight})
    with pytest.raises(BuildError, match=re.escape(message)):
        run_job(job(broken, layout), tmp_path)


def test_attributes_that_no_plugin_has_are_refused(tmp_path):
    graph, layout = graphs("tiny")[0]["trunk"], graphs("tiny")[1]
    nodes = [*graph.nodes]
    nodes[-1] = replace(nodes[-1], attrs={**nodes[-1].attrs, "out_dtype": "F16"})
    with pytest.raises(BuildError, match="attribute 'out_dtype' of op 'linear' is 'F16'"):
        run_job(job(replace(graph, nodes=nodes), layout), tmp_path)


def test_progress_names_the_graph_and_the_target(tmp_path):
    graph, layout = graphs("tiny")[0]["mtp"], graphs("tiny")[1]
    said = []
    run_job(job(graph, layout), tmp_path, said.append)
    assert said == [f"mtp: {len(graph.nodes)} nodes for sm_120a"]


def test_tensorrt_11_asks_for_its_gpu(tmp_path):
    graph, layout = graphs("tiny")[0]["mtp"], graphs("tiny")[1]
    tensorrt = replace(job(graph, layout), engine="tensorrt", target=None)
    with pytest.raises((ConfigError, BuildError)) as caught:
        run_job(tensorrt, tmp_path)
    assert "tensorrt" in str(caught.value).lower()
    assert BUILD.engine == "tensorrt-rtx"


def test_the_library_s_plugins_make_the_network_that_their_twins_make(tmp_path):
    """Where TensorRT's headers were there when the library was compiled, for whichever architecture."""
    libraries = [find_library(target, plugins=True) for target in BUILD_TARGETS]
    library = next((path for path in libraries if path is not None), None)
    if library is None:
        pytest.skip(
            "no plugin library for sm_120a or sm_121a; TensorRT's headers are needed for one"
        )
    found, layout = graphs("tiny")
    twins = build("tiny", "trunk", tmp_path)
    record = run_job(replace(job(found["trunk"], layout), plugin_library=library), tmp_path)
    plan = record.plans["trunk"]
    assert record.is_runnable
    assert plan.layers == twins.layers
    assert plan.num_streams == twins.num_streams
    assert {*plan.workspaces} == {"decode", "prefill"}
    for bytes_of in plan.workspaces.values():
        assert {f"layers.{n}.ffn.experts" for n in range(4)} <= bytes_of.keys()
    assert twins.workspaces == {}
