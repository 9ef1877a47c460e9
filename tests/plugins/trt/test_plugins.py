"""Plugins of every call of real graphs: what TensorRT is told about them is what the op table says."""

import pytest

from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.plugin_names import PLUGIN_NAMESPACE, PLUGIN_VERSION
from dsv4_trt.plugins.plugin_structures import TYPES
from tests.plugins.graph_calls import GRAPHS, graph_calls, sample_call
from tests.plugins.trt.plugin_case import PluginCase

CALLS = {"sample": [sample_call()]}


def cases(name):
    return [PluginCase(call) for call in CALLS.get(name) or graph_calls(name)]


graphs = pytest.mark.parametrize("name", [*GRAPHS, *CALLS])


def test_every_op_of_the_table_has_a_creator(harness):
    assert harness.creators == dict.fromkeys(OPS, (PLUGIN_VERSION, PLUGIN_NAMESPACE))
    types = {int: "INT32", bool: "INT32", float: "FLOAT32", str: "CHAR"}
    for name, op in OPS.items():
        expected = [(attr, types[spec.type]) for attr, spec in op.attrs.items()]
        assert harness.field_names(name) == expected


@graphs
def test_types_shapes_and_aliases_are_those_of_the_table(create, name):
    for case in cases(name):
        plugin = create(case.op.name, case.fields)
        assert plugin.num_outputs == len(case.output_params)
        assert plugin.output_types(case.input_types) == case.output_types
        assert plugin.output_shapes(case.input_shapes) == case.output_shapes
        sizes = {size: 3 + index for index, size in enumerate(case.call.sizes)}
        sized = PluginCase(case.call.sized(sizes))
        assert plugin.output_shapes(sized.input_shapes) == sized.output_shapes
        assert plugin.aliases == case.aliases
        plugin.shape_change(*case.tensors(sizes))


@graphs
def test_of_all_types_and_formats_those_of_the_call_are_supported(create, name):
    for case in cases(name):
        plugin = create(case.op.name, case.fields)
        types, num_inputs = [*case.input_types, *case.output_types], len(case.input_types)
        for position, expected in enumerate(types):
            before = [(name, 0) for name in types[:position]]
            taken = {t for t in TYPES if plugin.supports([*before, (t, 0)], num_inputs)}
            assert expected in taken
            variable = position < num_inputs and str(case.input_params[position].dtype)[0] == "$"
            assert taken == {expected} or (variable and taken == {"FLOAT", "BF16", "INT32", "INT8"})
            for other_format in (1, 2, 3, 12):
                assert not plugin.supports([*before, (expected, other_format)], num_inputs)


@graphs
def test_what_is_stored_in_a_plan_makes_an_equal_plugin(create, harness, name):
    for case in cases(name):
        built = create(case.op.name, case.fields)
        stored = built.serialized()
        assert stored == case.fields
        ran = create(case.op.name, stored, "runtime")
        assert ran.serialized() == stored
        assert built.identity == ran.identity == (case.op.name, PLUGIN_VERSION, PLUGIN_NAMESPACE)
        assert built.capabilities == {"core", "build", "runtime"}
        assert ran.capabilities == {"core", "runtime"}
        for plugin in (built, ran):
            copy = plugin.clone()
            assert copy.serialized() == stored
            assert copy.capabilities == plugin.capabilities
            copy.close()


@graphs
def test_its_attributes_are_shown_and_there_is_nothing_to_time(create, name):
    for case in cases(name):
        plugin = create(case.op.name, case.fields)
        names = [part.partition("=")[0] for part in plugin.metadata.split(", ") if part]
        assert names == list(case.op.attrs)
        for attr, value in case.call.attrs.items():
            if isinstance(value, str):
                assert f"{attr}={value}" in plugin.metadata
        assert plugin.tuning == (0, 1, None)


def test_a_runtime_plugin_is_asked_nothing_of_the_build(create, harness):
    case = cases("tiny")[0]
    plugin = create(case.op.name, case.fields, "runtime")
    assert plugin.num_outputs == -1
    assert harness.messages() == ["HARNESS: the plugin has no capability PLUGIN_V3ONE_BUILD"]
