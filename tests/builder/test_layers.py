"""What a graph is to TensorRT, before TensorRT has seen it."""

from collections import Counter

import pytest

from dsv4_trt.builder.lowering.layers import Kind, lower
from dsv4_trt.contract import TABLE_ORDER, is_block_table
from dsv4_trt.graph import ValueKind
from dsv4_trt.plan_record import ELEMENT_TYPES
from dsv4_trt.plugins.ops import OPS
from tests.builder.networks import MODELS, graphs

CASES = [(model, part) for model in MODELS for part in ("trunk", "mtp")]


@pytest.fixture(params=CASES, ids=["-".join(case) for case in CASES])
def case(request):
    model, part = request.param
    graph = graphs(model)[0][part]
    return graph, lower(graph)


def test_every_tensor_is_made_once_and_before_it_is_read(case):
    _, lowered = case
    known = [tensor.name for tensor in lowered.inputs]
    for layer in lowered.layers:
        assert set(layer.inputs) <= set(known), layer.name
        known += [tensor.name for tensor in layer.outputs]
    assert len(known) == len(set(known))
    assert {tensor.name for tensor in lowered.outputs} <= set(known)


def test_every_node_is_one_plugin_or_the_layers_that_make_its_outputs(case):
    graph, lowered = case
    plugins = {layer.name: layer for layer in lowered.layers if layer.kind is Kind.PLUGIN}
    made = {tensor.name for layer in lowered.layers for tensor in layer.outputs}
    native = [node for node in graph.nodes if node.name not in plugins]
    assert {node.op for node in native} <= {"embed", "expand_streams", "add_streams"}
    for node in graph.nodes:
        assert set(node.outputs.values()) <= made
        if node in native:
            continue
        plugin = plugins[node.name]
        inputs = [param.name for param in OPS[node.op].inputs_of(node.attrs)]
        outputs = [param.name for param in OPS[node.op].outputs_of(node.attrs)]
        assert dict(zip(inputs, plugin.inputs, strict=True)) == node.inputs
        names = [tensor.name for tensor in plugin.outputs]
        assert dict(zip(outputs, names, strict=True)) == node.outputs
        assert plugin.attrs == node.attrs
        aliases = {outputs[to]: inputs[source] for to, source in plugin.aliases.items()}
        assert aliases == node.aliases


def test_a_pool_version_has_one_reader(case):
    graph, lowered = case
    pools = {value.name for value in graph.of_kind(ValueKind.KV)}
    readers = Counter()
    for layer in lowered.layers:
        pools |= {layer.outputs[to].name for to in layer.aliases}
        readers.update(name for name in layer.inputs if name in pools)
    assert pools
    assert set(readers.values()) == {1}


def test_types_and_shapes_are_those_of_the_graph_and_bytes_are_int8(case):
    graph, lowered = case
    tensors = [*lowered.inputs, *(t for layer in lowered.layers for t in layer.outputs)]
    assert {tensor.dtype for tensor in tensors} <= {"FLOAT", "BF16", "INT32", "INT8"}
    for tensor in tensors:
        if tensor.name not in graph.values:
            continue
        value = graph.values[tensor.name]
        assert tensor.dtype == ELEMENT_TYPES[value.dtype]
        if is_block_table(tensor.name):
            assert tensor.shape == tuple(value.shape[i] for i in TABLE_ORDER)
            assert isinstance(tensor.shape[2], int), "layers are known, and fastest in memory"
        else:
            assert tensor.shape == value.shape


def test_block_tables_are_the_inputs_whose_order_the_op_table_names(case):
    graph, _ = case
    for node in graph.nodes:
        for param in OPS[node.op].inputs_of(node.attrs):
            order = TABLE_ORDER if is_block_table(node.inputs[param.name]) else None
            assert param.order == order, (node.name, param.name)


def test_a_rank_s_part_of_the_vocabulary_is_no_gather():
    for model, kinds in (("tiny", {Kind.GATHER}), ("tiny-tp2", {Kind.PLUGIN})):
        graph = graphs(model)[0]["trunk"]
        embed = next(node for node in graph.nodes if node.op == "embed")
        made = [
            layer for layer in lower(graph).layers if layer.outputs[0].name == embed.outputs["out"]
        ]
        assert {layer.kind for layer in made} == kinds


def test_inputs_that_no_layer_reads_are_left_out():
    lowered = lower(graphs("tiny")[0]["trunk"])
    assert "embed.row_offset" not in {tensor.name for tensor in lowered.inputs}
