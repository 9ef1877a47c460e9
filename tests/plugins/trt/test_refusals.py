"""What a plugin or its creator refuses gives a status and a message with what was found, and no more."""

import re
from dataclasses import replace

import pytest

from dsv4_trt.errors import PluginError
from dsv4_trt.plugins.harness_plugin import Range, Tensor
from dsv4_trt.plugins.op_schema import AttrSpec
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.plugin_fields import Field, field, fields_of
from tests.plugins.graph_calls import graph_calls
from tests.plugins.trt.plugin_case import PluginCase

LINEAR = {"weight_format": "fp8", "act": "act8_128", "out_dtype": "BF16"}
NORM = OPS["rms_norm"]
TYPES = ["BF16", "INT8", "INT8"]
SHAPES = [("T", 256), (512, 256), (4, 2)]


def linear(create, phase="build", **attrs):
    return create("linear", fields_of(OPS["linear"], {**LINEAR, **attrs}), phase)


@pytest.mark.parametrize("phase", ["build", "runtime"])
@pytest.mark.parametrize("op", OPS)
def test_fields_that_are_missing_or_not_known_are_named(create, op, phase):
    default = {int: 1, bool: True, float: 1.0}
    attrs = {
        name: spec.choices[0] if spec.choices else default[spec.type]
        for name, spec in OPS[op].attrs.items()
    }
    fields = fields_of(OPS[op], attrs)
    create(op, fields, phase)
    for index, each in enumerate(fields):
        with pytest.raises(PluginError, match=f"ERROR: .*'{op}'.*'{each.name}' is missing"):
            create(op, fields[:index] + fields[index + 1 :], phase)
        with pytest.raises(PluginError, match=f"'{each.name}' is there twice"):
            create(op, [*fields, each], phase)
    with pytest.raises(PluginError, match="'more' is not known; expected "):
        create(op, [*fields, field("more", "INT32", 1)], phase)


@pytest.mark.parametrize(
    ("spec", "given", "message"),
    [
        (int, field("a", "FLOAT32", 1.0), "has type 1 and length 1; expected one INT32"),
        (int, field("a", "CHAR", "1"), "has type 6"),
        (int, Field("a", "INT32", bytes(8), 2), "length 2; expected one INT32"),
        (int, Field("a", "INT32", b"", 0), "length 0"),
        (int, field("a", "INT64", 1 << 31), "is 2147483648; expected -2147483648 to 2147483647"),
        (bool, field("a", "INT32", 2), "is 2; expected 0 to 1"),
        (bool, field("a", "INT32", -1), "is -1; expected 0 to 1"),
        (float, field("a", "INT32", 1), "type 5 and length 1; expected one FLOAT32"),
        (float, field("a", "FLOAT64", 1e300), r"is 1e\+300; expected an fp32 number"),
        (str, field("a", "INT32", 1), "expected one CHAR"),
        (str, Field("a", "CHAR", b"", -1), "length -1; expected one CHAR"),
        (str, field("a", "CHAR", "fp16"), "is 'fp16'; expected one of fp8, bf16"),
        (str, field("a", "CHAR", ""), "is ''; expected one of fp8, bf16"),
        (str, field("a", "CHAR", "fp8\0\0"), "expected one of fp8, bf16"),
    ],
)
def test_fields_of_another_type_or_value_are_refused(create, spec, given, message):
    op, attr = next(
        (op, name)
        for op in OPS.values()
        for name, attr in op.attrs.items()
        if attr.type is spec and attr.choices in ((), ("fp8", "bf16"))
    )
    default = {int: 1, bool: True, float: 1.0}
    attrs = {
        name: each.choices[0] if each.choices else default[each.type]
        for name, each in op.attrs.items()
    }
    others = [each for each in fields_of(op, attrs) if each.name != attr]
    with pytest.raises(PluginError, match=f"'{op.name}'.*field '{attr}' .*{message}"):
        create(op.name, [*others, replace(given, name=attr)])


def test_wider_fields_and_a_final_zero_are_taken(create):
    given = [
        field("ratio", "INT64", 4),
        *fields_of(OPS["compress"], COMPRESS)[1:-5],
        field("eps", "FLOAT64", 1e-6),
        *fields_of(OPS["compress"], COMPRESS)[-4:],
    ]
    given[4] = field("act_dtype", "CHAR", "BF16\0")
    assert create("compress", given).serialized() == fields_of(OPS["compress"], COMPRESS)


COMPRESS = {
    "ratio": 4,
    "overlap": 2,
    "width": 512,
    "hadamard": True,
    "act_dtype": "BF16",
    "format": "fp8",
    "eps": 1e-6,
    "layer_row": 3,
    "entries_per_page": 64,
    "state_entries_per_page": 4,
    "state_window_pages": 3,
}


def test_attributes_of_these_tests_are_those_of_the_table():
    assert list(COMPRESS) == list(OPS["compress"].attrs)
    assert all(isinstance(spec, AttrSpec) for spec in OPS["compress"].attrs.values())


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (["HALF", "INT8", "INT8"], "input 'x' of op 'linear' is HALF; expected FLOAT, BF16"),
        (["BF16", "FP8", "INT8"], "input 'weight' of op 'linear' is FP8; expected INT8"),
        (["BF16", "INT8", "E8M0"], "input 'scale' of op 'linear' is E8M0; expected INT8"),
        (["BF16", "INT8"], "has 2 inputs; with these attributes expected 3: x, weight, scale"),
        ([*TYPES, "INT8"], "has 4 inputs"),
    ],
)
def test_types_that_are_not_those_of_the_table(create, types, message):
    with pytest.raises(PluginError, match=f"'linear' .*getOutputDataTypes: .*{message}"):
        linear(create).output_types(types)


def test_a_type_variable_is_one_type(create):
    plugin = create("add_streams", [])
    assert plugin.output_types(["FLOAT", "FLOAT"]) == ["FLOAT"]
    with pytest.raises(PluginError, match="'streams' of op 'add_streams' is BF16; expected FLOAT"):
        plugin.output_types(["FLOAT", "BF16"])


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            [("T", 255), *SHAPES[1:]],
            r"'weight' .* shape \[512, 256\]; dimension 'in_features' is 256",
        ),
        ([SHAPES[0], (512, 256), (4, 3)], r"'scale' .* \[4, 3\]; dimension 'in_features/128' is 3"),
        (
            [SHAPES[0], (500, 256), (4, 2)],
            "'out_features/128' of 'scale' .* is 500 / 128; expected a",
        ),
        ([SHAPES[0], (512,), (4, 2)], "'weight' of op 'linear' has 1 dimensions; expected 2"),
        ([(), *SHAPES[1:]], "'x' of op 'linear' has 0 dimensions; expected 1 or more"),
        (
            [(2, 2, 2, 2, 256), *SHAPES[1:]],
            "'x' of op 'linear' has 5 dimensions; expected at most 4",
        ),
        ([(-1, 256), *SHAPES[1:]], r"shape \[-1\]; expected no negative size"),
    ],
)
def test_shapes_that_do_not_fit(create, shapes, message):
    with pytest.raises(PluginError, match=f"'linear' .*getOutputShapes: .*{message}"):
        linear(create).output_shapes(shapes)


def test_sizes_not_known_yet_may_be_anything(create):
    assert linear(create).output_shapes([("a", "b", 256), ("c", 256), (4, "d")]) == [
        ("a", "b", "c")
    ]
    gather = create("all_gather", [field("world_size", "INT32", 8)])
    assert gather.output_shapes([("R", "cols")]) == [("R", "cols*8")]


def test_a_size_that_a_later_input_tells_is_known(create):
    assert create("add_streams", []).output_shapes([("T", "h"), ("T", 4, 64)]) == [("T", 4, 64)]
    assert create("add_streams", []).output_shapes([(8, 64), ("T", 4, "h")]) == [(8, 4, 64)]


def test_leading_dimensions_that_are_known_are_the_output_s(create):
    assert linear(create).output_shapes([(2, 3, 256), *SHAPES[1:]]) == [(2, 3, 512)]


def test_a_product_beyond_64_bits_is_refused(create):
    gather = create("all_gather", [field("world_size", "INT32", 8)])
    with pytest.raises(PluginError, match=r"'cols\*world_size' of 'out' .* \* 8; expected a whole"):
        gather.output_shapes([(1, 1 << 61)])


def test_an_output_that_there_is_not_has_no_alias(create, harness):
    plugin = linear(create)
    for index in (-1, 1, 1 << 30):
        assert harness.c.dsv4_harness_aliased_input(plugin._address, index) == -1
        assert f"output {index}; expected 0 to 0" in harness.messages()[0]


@pytest.mark.parametrize("name", ["tiny", "flash-exact", "pro-tp2"])
def test_shapes_of_a_launch_must_be_those_of_a_call(create, name):
    """Every dimension of every tensor of every call, one more than it should be."""
    for call in graph_calls(name):
        case = PluginCase(call)
        plugin = create(case.op.name, case.fields)
        sizes = {size: 2 + index for index, size in enumerate(call.sizes)}
        inputs, outputs = case.tensors(sizes)
        named = [(p, t) for p, t in zip(case.output_params, outputs, strict=True)]
        for index, (param, tensor) in enumerate(named):
            for dim in range(len(tensor.shape)):
                wrong = [*outputs]
                wrong[index] = one_more(tensor, dim)
                with pytest.raises(PluginError, match=f"output '{param.name}' has another type or"):
                    plugin.shape_change(inputs, wrong)
        # an input of a size that nothing else has is as good as any; the outputs may then not fit
        for index, tensor in enumerate(inputs):
            for dim, expression in enumerate(shown_dims(case.input_params[index], tensor)):
                if str(expression).isidentifier():
                    continue
                wrong = [*inputs]
                wrong[index] = one_more(tensor, dim)
                with pytest.raises(PluginError, match=re.escape(f"'{expression}'")):
                    plugin.shape_change(wrong, outputs)


def shown_dims(param, tensor):
    """The table's expressions of a tensor's dimensions, as TensorRT is shown them."""
    if param.shape[0] == "...":
        return ["lead"] * (len(tensor.shape) - len(param.shape) + 1) + list(param.shape[1:])
    return [param.shape[i] for i in param.order or range(len(param.shape))]


def one_more(tensor, dim):
    shape = [*tensor.shape]
    shape[dim] += 1
    return replace(tensor, shape=tuple(shape))


def test_another_format_or_type_in_a_launch_is_refused(create):
    plugin = create("add_streams", [])
    inputs = [Tensor("BF16", (4, 64)), Tensor("BF16", (4, 2, 64))]
    outputs = [Tensor("BF16", (4, 2, 64))]
    plugin.shape_change(inputs, outputs)
    with pytest.raises(PluginError, match="output 'streams' has another type or shape"):
        plugin.shape_change(inputs, [replace(outputs[0], type="FLOAT")])
    with pytest.raises(PluginError, match="'streams' of op 'add_streams' is FLOAT; expected BF16"):
        plugin.shape_change([inputs[0], replace(inputs[1], type="FLOAT")], outputs)
    with pytest.raises(PluginError, match="has 1 inputs; with these attributes expected 2"):
        plugin.shape_change(inputs[:1], outputs)


def test_a_profile_whose_ends_do_not_fit_is_refused(create, library):
    plugin = linear(create)
    weight, scale = Range("INT8", (512, 256), (512, 256)), Range("INT8", (4, 2), (4, 2))
    plugin.configure([Range("BF16", (1, 256), (8, 256)), weight, scale])
    for bad in (Range("BF16", (1, 256), (8, 255)), Range("BF16", (1, 128), (8, 256))):
        with pytest.raises(PluginError, match=r"configurePlugin: .*dimension 'in_features' is 256"):
            plugin.configure([bad, weight, scale])
    with pytest.raises(PluginError, match=r"configurePlugin: .*'weight' of op 'linear' is BF16"):
        plugin.configure([Range("BF16", (1, 256), (8, 256)), replace(weight, type="BF16"), scale])
