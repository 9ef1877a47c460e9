"""Router and experts."""

from __future__ import annotations

from dsv4_trt.dtypes import DType
from dsv4_trt.plugins.op_schema import AttrSpec, Op, Param
from dsv4_trt.plugins.ops.common import (
    ACT,
    BF16,
    EXPERT_TYPES,
    F32,
    FLOAT,
    FLOAT_TYPE,
    I8,
    I32,
    INT,
)

MOE_OPS = (
    Op(
        name="router",
        doc="sqrt(softplus(x @ gate^T)) in fp32; experts by biased score or by token id (`by`); weights "
        "from the unbiased scores, normalised, times `route_scale`.",
        inputs=(
            Param("x", "$A", ("T", "H")),
            Param("gate", BF16, ("E", "H")),
            Param("bias", F32, ("E",), when=("by", ("score",))),
            Param("tid2eid", I32, ("V", "topk"), when=("by", ("token",))),
            Param("token_ids", I32, ("T",), when=("by", ("token",))),
        ),
        outputs=(
            Param("expert_ids", I32, ("T", "topk")),
            Param("weights", F32, ("T", "topk")),
        ),
        attrs={"by": AttrSpec(str, ("score", "token")), "topk": INT, "route_scale": FLOAT},
    ),
    Op(
        name="experts",
        doc="Clamped SwiGLU experts of this rank, the routing weight applied before w2, summed in fp32. "
        "`expert_map` gives the local row of each expert, -1 if it lives elsewhere.",
        inputs=(
            Param("x", "$A", ("T", "H")),
            Param("expert_ids", I32, ("T", "K")),
            Param("weights", F32, ("T", "K")),
            Param("expert_map", I32, ("E",)),
            Param("w13", EXPERT_TYPES, ("local", "2*width", "H/pack"), by="weight_format"),
            Param("w13_scale", I8, ("local", "2*width/scale_rows", "H/scale_cols")),
            Param("w2", EXPERT_TYPES, ("local", "H", "width/pack"), by="weight_format"),
            Param("w2_scale", I8, ("local", "H/scale_rows", "width/scale_cols")),
        ),
        outputs=(Param("out", F32, ("T", "H")),),
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
            Param("x", "$A", ("T", "H")),
            Param("w13", DType.F8_E4M3, ("2*width", "H")),
            Param("w13_scale", I8, ("2*width/128", "H/128")),
            Param("w2", DType.F8_E4M3, ("H", "width")),
            Param("w2_scale", I8, ("H/128", "width/128")),
        ),
        outputs=(Param("out", "@out_dtype", ("T", "H")),),
        attrs={"width": INT, "act": ACT, "swiglu_limit": FLOAT, "out_dtype": FLOAT_TYPE},
    ),
)
