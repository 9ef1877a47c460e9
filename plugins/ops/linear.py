"""Embedding and linear layers."""

from __future__ import annotations

from dsv4_trt.dtypes import DType
from dsv4_trt.plugins.op_schema import Op, Param
from dsv4_trt.plugins.ops.common import ACT, BF16, FLOAT_TYPE, I8, I32, INT, WEIGHT, WEIGHT_TYPES

LINEAR_OPS = (
    Op(
        name="embed",
        doc="Rows of the local vocabulary slice; ids outside it give zeros.",
        inputs=(
            Param("token_ids", I32, ("T",)),
            Param("weight", BF16, ("V", "H")),
            Param("row_offset", I32, (1,)),
        ),
        outputs=(Param("out", "@out_dtype", ("T", "H")),),
        attrs={"out_dtype": FLOAT_TYPE},
    ),
    Op(
        name="linear",
        doc="x @ weight^T. fp8 weights carry one e8m0 scale byte per 128x128 block.",
        inputs=(
            Param("x", "$A", ("...", "in_features")),
            Param("weight", WEIGHT_TYPES, ("out_features", "in_features"), by="weight_format"),
            Param(
                "scale",
                I8,
                ("out_features/128", "in_features/128"),
                when=("weight_format", ("fp8",)),
            ),
        ),
        outputs=(Param("out", "@out_dtype", ("...", "out_features")),),
        attrs={"weight_format": WEIGHT, "act": ACT, "out_dtype": FLOAT_TYPE},
    ),
    Op(
        name="grouped_linear",
        doc="Heads in consecutive groups, each group projected by its own rows of the weight. With "
        "`act` act8_128 the input is quantized already, as inv_rope_quant gives it.",
        inputs=(
            Param("x", "$X", ("T", "N", "D")),
            Param("x_scale", I8, ("T", "N*D/128"), when=("act", ("act8_128",))),
            Param("weight", DType.F8_E4M3, ("rows", "cols")),
            Param("scale", I8, ("rows/128", "cols/128")),
        ),
        outputs=(Param("out", "@out_dtype", ("T", "rows")),),
        attrs={"groups": INT, "act": ACT, "out_dtype": FLOAT_TYPE},
    ),
)
