"""The residual path: streams in, mixed, and out."""

from __future__ import annotations

from dsv4_trt.plugins.op_schema import Op, TensorSpec
from dsv4_trt.plugins.ops.common import BF16, F32, FLOAT, FLOAT_TYPE, I32, INT

RESIDUAL_OPS = (
    Op(
        name="expand_streams",
        doc="Copy a hidden state into every residual stream.",
        inputs=(TensorSpec("x", "$A", ("T", "H")),),
        outputs=(TensorSpec("streams", "$A", ("T", "hc_mult", "H")),),
        attrs={"hc_mult": INT},
    ),
    Op(
        name="add_streams",
        doc="Add one hidden state to every residual stream.",
        inputs=(
            TensorSpec("x", "$A", ("T", "H")),
            TensorSpec("streams", "$A", ("T", "M", "H")),
        ),
        outputs=(TensorSpec("streams", "$A", ("T", "M", "H")),),
    ),
    Op(
        name="rms_norm",
        doc="x * rsqrt(mean(x^2) + eps) * weight over the last dimension, in fp32.",
        inputs=(
            TensorSpec("x", "$A", ("...", "H")),
            TensorSpec("weight", BF16, ("H",)),
        ),
        outputs=(TensorSpec("out", "$A", ("...", "H")),),
        attrs={"eps": FLOAT},
    ),
    Op(
        name="mhc_pre",
        doc="Mix the streams into a layer input and normalise it; also give the weights that put "
        "the layer output back (post, comb; comb's first index is the source stream).",
        inputs=(
            TensorSpec("streams", "$A", ("T", "M", "H")),
            TensorSpec("fn", F32, ("mix", "M*H")),
            TensorSpec("base", F32, ("mix",)),
            TensorSpec("scale", F32, (3,)),
            TensorSpec("norm_weight", BF16, ("H",)),
        ),
        outputs=(
            TensorSpec("x", "$A", ("T", "H")),
            TensorSpec("post", F32, ("T", "M")),
            TensorSpec("comb", F32, ("T", "M", "M")),
        ),
        attrs={"eps": FLOAT, "hc_eps": FLOAT, "iters": INT},
    ),
    Op(
        name="mhc_post",
        doc="streams'[k] = post[k] * y + sum over j of comb[j, k] * streams[j].",
        inputs=(
            TensorSpec("y", "$A", ("T", "H")),
            TensorSpec("streams", "$A", ("T", "M", "H")),
            TensorSpec("post", F32, ("T", "M")),
            TensorSpec("comb", F32, ("T", "M", "M")),
        ),
        outputs=(TensorSpec("streams", "$A", ("T", "M", "H")),),
    ),
    Op(
        name="mhc_post_pre",
        doc="mhc_post of one site, then mhc_pre of the next, without a trip through memory.",
        inputs=(
            TensorSpec("y", "$A", ("T", "H")),
            TensorSpec("streams", "$A", ("T", "M", "H")),
            TensorSpec("post", F32, ("T", "M")),
            TensorSpec("comb", F32, ("T", "M", "M")),
            TensorSpec("fn", F32, ("mix", "M*H")),
            TensorSpec("base", F32, ("mix",)),
            TensorSpec("scale", F32, (3,)),
            TensorSpec("norm_weight", BF16, ("H",)),
        ),
        outputs=(
            TensorSpec("streams", "$A", ("T", "M", "H")),
            TensorSpec("x", "$A", ("T", "H")),
            TensorSpec("post", F32, ("T", "M")),
            TensorSpec("comb", F32, ("T", "M", "M")),
        ),
        attrs={"eps": FLOAT, "hc_eps": FLOAT, "iters": INT},
    ),
    Op(
        name="mhc_head",
        doc="Collapse the streams of the wanted rows and apply the final norm.",
        inputs=(
            TensorSpec("streams", "$A", ("T", "M", "H")),
            TensorSpec("rows", I32, ("R",)),
            TensorSpec("fn", F32, ("M", "M*H")),
            TensorSpec("base", F32, ("M",)),
            TensorSpec("scale", F32, (1,)),
            TensorSpec("norm_weight", BF16, ("H",)),
        ),
        outputs=(TensorSpec("x", "$A", ("R", "H")),),
        attrs={"eps": FLOAT, "hc_eps": FLOAT},
    ),
    Op(
        name="add",
        doc="a + b in fp32.",
        inputs=(
            TensorSpec("a", F32, ("T", "H")),
            TensorSpec("b", "$B", ("T", "H")),
        ),
        outputs=(TensorSpec("out", "@out_dtype", ("T", "H")),),
        attrs={"out_dtype": FLOAT_TYPE},
    ),
)
