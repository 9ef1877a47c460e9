"""A plan can not run where its GPU is not; the network it is built from can be read back and interpreted.

Logits of the layers that TensorRT holds are those of the native engine, bit for bit: no tensor is wired
wrongly, no attribute is lost.
"""

from dataclasses import replace

import pytest
import torch

from dsv4_trt.builder.lowering.layers import lower
from dsv4_trt.builder.lowering.process import run_job
from dsv4_trt.kv_plan import plan_for_sequences
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.native import NativeEngine
from tests.builder.fake_network import recorded
from tests.builder.interpreter import RecordedNetwork
from tests.builder.networks import job
from tests.workshop import logits, random_ids

CASES = [("serving", 1), ("exact", 1), ("serving", 2)]
IDS = random_ids(260, seed=1)
NEXT = random_ids(3, seed=2)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-tp{case[1]}")
def bundle(request, workshop, tiny_a):
    precision, ranks = request.param
    return open_bundle(workshop.bundle_dir(tiny_a, tp=ranks, ep=ranks), precision=precision)


@pytest.fixture(scope="module")
def expected(bundle):
    return _logits(_engine(bundle))


def test_the_network_in_tensorrt_rtx_gives_the_native_logits(bundle, expected, tmp_path):
    networks = {}
    for graph in (bundle.trunk, bundle.mtp):
        record = run_job(job(graph, bundle.layout), tmp_path)
        networks[graph.name] = RecordedNetwork(record.plans[graph.name].layers, graph)
    _check(_logits(_engine(bundle, networks)), expected)


def test_the_network_for_tensorrt_gives_the_native_logits(bundle, expected):
    graphs = (bundle.trunk, bundle.mtp)
    networks = {g.name: RecordedNetwork(recorded(lower(g)), g) for g in graphs}
    _check(_logits(_engine(bundle, networks)), expected)


def test_a_wrong_tensor_would_show(bundle, expected):
    """One layer of many reads the weight of another, of the same shape and type."""
    graph = bundle.trunk
    layers = [*recorded(lower(graph))]
    index = next(i for i, layer in enumerate(layers) if layer.op == "qkv_norm")
    at = next(i for i, layer in enumerate(layers) if i > index and layer.op == "qkv_norm")
    layers[index] = replace(layers[index], inputs=(*layers[index].inputs[:2], layers[at].inputs[2]))
    network = RecordedNetwork(layers, graph)
    found = _logits(_engine(bundle, {"trunk": network}))
    assert not torch.equal(found["prefill"], expected["prefill"])


def _engine(bundle, networks=None):
    engine = NativeEngine(bundle, plan_for_sequences(bundle.layout, [300]))
    for name, network in (networks or {}).items():
        setattr(engine, f"_{name}", network)
    return engine


def _logits(engine):
    return logits(engine, IDS, decode=NEXT, chunk=129, mtp=True)


def _check(found, expected):
    assert found.keys() == expected.keys() == {"prefill", "decode", "mtp", "mtp_decode"}
    for name, rows in expected.items():
        assert torch.equal(found[name], rows), name
