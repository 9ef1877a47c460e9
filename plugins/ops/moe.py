"""Router and experts."""

from __future__ import annotations

from dsv4_trt.dtypes import DType
from dsv4_trt.plugins.op_schema import AttrSpec, Op, TensorSpec
from dsv4_trt.plugins.ops.common import ACT, BF16, F32, FLOAT, FLOAT_TYPE, I8, I32, INT

MOE_OPS = (
    Op(
        name="router",
        doc="sqrt(softplus(x @ gate^T)) in fp32; experts by biased score or by token id; weights from "
        "the unbiased scores, normalised, times `route_scale`.",
        inputs=(
            TensorSpec("x", "$A", ("T", "H")),
            TensorSpec("gate", BF16, ("E", "H")),
            TensorSpec("bias", F32, ("E",), optional=True),
            TensorSpec("tid2eid", I32, ("V", "topk"), optional=True),
            TensorSpec("token_ids", I32, ("T",), optional=True),
        ),
        outputs=(
            TensorSpec("expert_ids", I32, ("T", "topk")),
            TensorSpec("weights", F32, ("T", "topk")),
        ),
        attrs={"topk": INT, "route_scale": FLOAT},
    ),
    Op(
        name="experts",
        doc="Clamped SwiGLU experts of this rank, the routing weight applied before w2, summed in fp32. "
        "`expert_map` gives the local row of each expert, -1 if it lives elsewhere.",
        inputs=(
            TensorSpec("x", "$A", ("T", "H")),
            TensorSpec("expert_ids", I32, ("T", "K")),
            TensorSpec("weights", F32, ("T", "K")),
            TensorSpec("expert_map", I32, ("E",)),
            TensorSpec(
                "w13",
                {"fp4": I8, "fp8": DType.F8_E4M3},
                ("local", "2*width", "H/pack"),
                by="weight_format",
            ),
            TensorSpec("w13_scale", I8, ("local", "2*width/scale_rows", "H/scale_cols")),
            TensorSpec(
                "w2",
                {"fp4": I8, "fp8": DType.F8_E4M3},
                ("local", "H", "width/pack"),
                by="weight_format",
            ),
            TensorSpec("w2_scale", I8, ("local", "H/scale_rows", "width/scale_cols")),
        ),
        outputs=(TensorSpec("out", F32, ("T", "H")),),
        attrs={
            "weight_format": AttrSpec(str, ("fp4", "fp8")),
            "width": INT,
            "pack": INT,
            "scale_rows": INT,
            "scale_cols": INT,
            "act": ACT,
            "swiglu_limit": FLOAT,
        },
    ),
    Op(
        name="shared_expert",
        doc="Clamped SwiGLU with fp8 weights, for every token.",
        inputs=(
            TensorSpec("x", "$A", ("T", "H")),
            TensorSpec("w13", DType.F8_E4M3, ("2*width", "H")),
            TensorSpec("w13_scale", I8, ("2*width/128", "H/128")),
            TensorSpec("w2", DType.F8_E4M3, ("H", "width")),
            TensorSpec("w2_scale", I8, ("H/128", "width/128")),
        ),
        outputs=(TensorSpec("out", "@out_dtype", ("T", "H")),),
        attrs={"width": INT, "act": ACT, "swiglu_limit": FLOAT, "out_dtype": FLOAT_TYPE},
    ),
)
