"""How an op's table entry binds shapes and types, and what it refuses."""

from __future__ import annotations

import json

import pytest

from dsv4_trt.dtypes import DType
from dsv4_trt.errors import PluginError
from dsv4_trt.plugins.op_schema import AttrSpec, Op, Param
from dsv4_trt.plugins.ops import OPS

BF16, F32, I8, FP8 = DType.BF16, DType.F32, DType.I8, DType.F8_E4M3
LINEAR = Op(
    name="toy_linear",
    doc="",
    inputs=(
        Param("x", "$A", ("...", "K")),
        Param("weight", {"fp8": FP8, "bf16": BF16}, ("N", "K"), by="format"),
        Param("scale", I8, ("N/128", "K/128"), when=("format", ("fp8",))),
    ),
    outputs=(
        Param("out", "@out_dtype", ("...", "N")),
        Param("copy", "$A", ("...", "times*K")),
    ),
    attrs={
        "format": AttrSpec(str, ("fp8", "bf16")),
        "out_dtype": AttrSpec(str, ("F32", "BF16")),
        "times": AttrSpec(int),
    },
)
ATTRS = {"format": "fp8", "out_dtype": "F32", "times": 3}
INPUTS = {
    "x": (BF16, ("num_tokens", 256)),
    "weight": (FP8, (512, 256)),
    "scale": (I8, (4, 2)),
}


def test_shapes_and_types_follow_the_inputs():
    assert LINEAR.infer(INPUTS, ATTRS) == {
        "out": (F32, ("num_tokens", 512)),
        "copy": (BF16, ("num_tokens", 768)),
    }
    wide = {**INPUTS, "x": (F32, (2, 3, 256))}
    assert LINEAR.infer(wide, ATTRS)["copy"] == (F32, (2, 3, 768))


def test_an_attribute_decides_which_inputs_there_are_and_of_which_type():
    inputs = {"x": (BF16, (256,)), "weight": (BF16, (512, 256))}
    found = LINEAR.infer(inputs, {**ATTRS, "format": "bf16"})
    assert found["out"] == (F32, (512,))
    with pytest.raises(PluginError, match=r"missing \[\], not known \['scale'\]"):
        LINEAR.infer({**inputs, "scale": (I8, (4, 2))}, {**ATTRS, "format": "bf16"})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": None}, r"missing \['x'\]"),
        ({"scale": None}, r"missing \['scale'\]"),
        ({"bias": (BF16, (512,))}, r"not known \['bias'\]"),
        ({"weight": (BF16, (512, 256))}, "'weight' .* is BF16; expected F8_E4M3"),
        ({"scale": (DType.U8, (4, 2))}, "'scale' .* is U8; expected I8"),
        ({"weight": (FP8, (512, 128))}, "dimension 'K' is 128, expected 256"),
        ({"scale": (I8, (4, 1))}, "dimension 'K/128' is 1, expected 2"),
        ({"scale": (I8, (4,))}, "expected 2 dimensions"),
        ({"weight": (FP8, (512,))}, "expected 2 dimensions"),
    ],
)
def test_a_wrong_input_is_named(inputs, message):
    merged = {**INPUTS, **inputs}
    merged = {name: found for name, found in merged.items() if found is not None}
    with pytest.raises(PluginError, match=message):
        LINEAR.infer(merged, ATTRS)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": ("num_tokens", 200), "weight": (512, 200), "scale": (4, 1)}, "'K/128' .* 200 / 128"),
        ({"x": (7, "K"), "weight": (512, "K")}, r"'K/128' .* K / 128; .*no run-time size"),
        ({"x": ()}, "expected 2 dimensions"),
    ],
)
def test_a_size_that_does_not_come_out_is_refused(shapes, message):
    merged = {name: (dtype, shapes.get(name, shape)) for name, (dtype, shape) in INPUTS.items()}
    with pytest.raises(PluginError, match=message):
        LINEAR.infer(merged, ATTRS)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"times": 3.0}, "'times' .* is 3.0; expected int"),
        ({"times": True}, "'times' .* is True; expected int"),
        ({"format": "fp4"}, "expected one of fp8, bf16"),
        ({"extra": 1}, "got attributes"),
    ],
)
def test_a_wrong_attribute_is_named(attrs, message):
    with pytest.raises(PluginError, match=message):
        LINEAR.infer(INPUTS, {**ATTRS, **attrs})


def test_a_missing_attribute_is_named():
    with pytest.raises(PluginError, match=r"expected .*'times'"):
        LINEAR.infer(INPUTS, {"format": "fp8", "out_dtype": "F32"})


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_every_table_entry_is_sound(op):
    """Documented, JSON-able, aliases name an input and an output, and choices cover their types."""
    assert op.doc
    json.dumps(op.to_json())
    inputs = {t.name: t for t in op.inputs}
    outputs = {t.name: t for t in op.outputs}
    assert len(inputs) == len(op.inputs)
    assert len(outputs) == len(op.outputs)
    for written, overwritten in op.aliases.items():
        assert outputs[written].shape == inputs[overwritten].shape
    for spec in (*op.inputs, *op.outputs):
        if isinstance(spec.dtype, str) and spec.dtype.startswith("@"):
            assert op.attrs[spec.dtype[1:]].choices
        elif not isinstance(spec.dtype, str | DType):
            assert set(spec.dtype) == set(op.attrs[spec.by].choices)
