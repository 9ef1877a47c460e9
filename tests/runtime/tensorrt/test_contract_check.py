"""A plan, its record and its graph: whatever differs is refused by name."""

from dataclasses import replace

import pytest

pytest.importorskip("cuda.bindings")
from dsv4_trt.errors import BundleMismatch
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.tensorrt.contract_check import check_contract
from dsv4_trt.runtime.tensorrt.plan import load_plan
from tests.runtime.tensorrt.fake_tensorrt import ICudaEngine
from tests.runtime.tensorrt.plans import VERSIONS, plan_of
from tests.workshop import run_cli


@pytest.fixture
def bundle(plan_dir):
    return open_bundle(plan_dir)


@pytest.fixture
def parts(bundle, host):
    """Module, graph, record and plan of the trunk, as they belong together."""
    record = bundle.record.plans["trunk"]
    plan = plan_of(bundle.trunk, record, VERSIONS["tensorrt"])
    return host.trt, bundle.trunk, record, plan


def check(trt, graph, record, plan):
    check_contract(trt, ICudaEngine(trt, plan), graph, record)


def test_what_belongs_together_passes(bundle, parts, host):
    check(*parts)
    mtp = bundle.record.plans["mtp"]
    check(host.trt, bundle.mtp, mtp, plan_of(bundle.mtp, mtp, VERSIONS["tensorrt"]))


def test_the_plan_of_another_graph_is_refused(bundle, parts):
    trt, trunk, record, _ = parts
    mtp = bundle.record.plans["mtp"]
    plan = plan_of(bundle.mtp, mtp, VERSIONS["tensorrt"])
    with pytest.raises(
        BundleMismatch, match=r"graph 'trunk' is another network's: it has a tensor"
    ):
        check(trt, trunk, record, plan)
    with pytest.raises(
        BundleMismatch, match=r"graph 'trunk' is another network's: the record has an"
    ):
        check(trt, trunk, mtp, plan)


def set_tensor(name, **changes):
    return lambda plan: plan["tensors"][name].update(changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p["tensors"].pop("kv.swa.0"), r"it lacks 'kv\.swa\.0'"),
        (lambda p: p["tensors"].pop("head"), r"it lacks 'head'"),
        (
            lambda p: p["tensors"].update(more=p["tensors"]["positions"]),
            r"a tensor 'more' beyond its record",
        ),
        (set_tensor("token_ids", mode="OUTPUT"), r"mode of 'token_ids' is .*OUTPUT.*INPUT"),
        (set_tensor("head", dtype="BF16"), r"type of 'head' is .*BF16.*FLOAT"),
        (set_tensor("kv.swa.0", dtype="FP8"), r"type of 'kv\.swa\.0' is .*FP8.*INT8"),
        (
            set_tensor("norm.weight", shape=[255]),
            r"shape of 'norm\.weight' is \[255\], expected \[256",
        ),
        (set_tensor("positions", shape=[96]), r"shape of 'positions' is \[96\], expected \[-1\]"),
        (
            set_tensor("block_table.swa", shape=[4, "num_table_rows", "pages.swa"]),
            r"shape of 'block_table\.swa' is \[\d+, -1, -1\], expected \[-1, -1, \d+\]",
        ),
        (set_tensor("decode_carrier", location="HOST"), r"location of 'decode_carrier' is .*HOST"),
        (set_tensor("kv.swa.0", format="CHW4"), r"format of 'kv\.swa\.0' is .*CHW4"),
        (set_tensor("head", aliased="kv.swa.0"), r"'head' lies in its input 'kv\.swa\.0'"),
        (lambda p: p["profiles"].pop(), r"it has 1 profiles, expected 2"),
        (
            lambda p: p["profiles"].reverse(),
            r"profile 'decode' takes '[a-z_]+' of .*expected \[\[1\], \[4\], \[4\]\]",
        ),
        (lambda p: p.update(num_aux_streams=3), r"it runs on 4 streams, 3 at most"),
    ],
)
def test_a_plan_that_differs_from_its_record_is_refused(parts, change, message):
    trt, graph, record, plan = parts
    plan["profiles"] = [dict(sizes) for sizes in plan["profiles"]]
    change(plan)
    with pytest.raises(BundleMismatch, match=message):
        check(trt, graph, record, plan)


def without(tensors, name):
    return tuple(tensor for tensor in tensors if tensor.name != name)


def without_range(profile, name):
    return replace(profile, sizes={k: v for k, v in profile.sizes.items() if k != name})


def with_changed(tensors, name, **changes):
    return tuple(replace(t, **changes) if t.name == name else t for t in tensors)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: {"inputs": without(r.inputs, "kv.swa.0")}, r"the record lacks 'kv\.swa\.0'"),
        (lambda r: {"outputs": without(r.outputs, "head")}, r"the record lacks 'head'"),
        (
            lambda r: {"inputs": (*r.inputs, replace(r.inputs[0], name="more"))},
            r"an input 'more', which the graph has not",
        ),
        (
            lambda r: {"inputs": with_changed(r.inputs, "positions", dtype="FLOAT")},
            r"'positions' is recorded as FLOAT \['num_tokens'\], expected INT32 \['num_tokens'\]",
        ),
        (
            lambda r: {"inputs": with_changed(r.inputs, "block_table.swa", shape=(1, 2, 3))},
            r"'block_table\.swa' is recorded as INT32 \[1, 2, 3\], expected INT32 \['num_table_rows', 'p",
        ),
        (lambda r: {"profiles": ()}, r"the record has no profiles"),
        (
            lambda r: {"profiles": (r.profiles[0], without_range(r.profiles[1], "num_logits"))},
            r"profile 'prefill' of the record has no range of num_logits",
        ),
        (
            lambda r: {"layers": tuple(replace(layer, aliases={}) for layer in r.layers)},
            r"its layers write other pools in place",
        ),
    ],
)
def test_a_record_that_differs_from_the_graph_is_refused(parts, change, message):
    trt, graph, record, plan = parts
    with pytest.raises(BundleMismatch, match=message):
        check(trt, graph, replace(record, **change(record)), plan)


def test_how_many_differ_is_said(parts):
    trt, graph, record, plan = parts
    for name in ("positions", "token_ids", "seq_ids"):
        plan["tensors"].pop(name)
    with pytest.raises(BundleMismatch, match=r"it lacks 'positions', and 2 more; build the bundle"):
        check(trt, graph, record, plan)


def test_inputs_that_no_layer_reads_may_be_missing(bundle, parts):
    """The embedding of a whole vocabulary is a gather, which needs no first row."""
    assert "embed.row_offset" in bundle.trunk.values
    assert "embed.row_offset" not in {tensor.name for tensor in parts[2].inputs}


def test_what_the_builder_records_belongs_to_the_graphs(tmp_path, host, monkeypatch):
    """Real plans, which no machine without a GPU can load, of twins, which none would run."""
    for package in ("tensorrt_rtx", "onnx"):
        pytest.importorskip(package)
    monkeypatch.setenv("DSV4_TRT_CACHE", str(tmp_path))
    monkeypatch.delenv("DSV4_PLUGIN_LIBRARY", raising=False)
    model = ("--preset", "tiny", "--dummy-weights", "--engine", "tensorrt-rtx")
    run_cli("build", *model, "--output_dir", tmp_path / "engine")
    bundle = open_bundle(tmp_path / "engine")
    for graph in bundle.graphs:
        record = bundle.record.plans[graph.name]
        check(host.trt, graph, record, plan_of(graph, record, VERSIONS["tensorrt-rtx"]))
    with pytest.raises(BundleMismatch, match="without the plugin library"):
        load_plan(bundle, bundle.trunk, host.library)
