"""The residual path: streams in, mixed, and out."""

from __future__ import annotations

from dsv4_trt.plugins.op_schema import Op, Param
from dsv4_trt.plugins.ops.common import BF16, F32, FLOAT, FLOAT_TYPE, I32, INT

STREAMS = Param("streams", "$A", ("T", "M", "H"))
POST_COMB = (Param("post", F32, ("T", "M")), Param("comb", F32, ("T", "M", "M")))
SITE_INPUT = (Param("x", "$A", ("T", "H")), *POST_COMB)  # what a site is entered with
SITE_OUTPUT = (Param("y", "$A", ("T", "H")), STREAMS, *POST_COMB)  # what it is left with
SITE_WEIGHTS = (
    Param("fn", F32, ("mix", "M*H")),
    Param("base", F32, ("mix",)),
    Param("scale", F32, (3,)),
    Param("norm_weight", BF16, ("H",)),
)
SITE_ATTRS = {"eps": FLOAT, "hc_eps": FLOAT, "iters": INT}

RESIDUAL_OPS = (
    Op(
        name="expand_streams",
        doc="Copy a hidden state into every residual stream.",
        inputs=(Param("x", "$A", ("T", "H")),),
        outputs=(Param("streams", "$A", ("T", "hc_mult", "H")),),
        attrs={"hc_mult": INT},
    ),
    Op(
        name="add_streams",
        doc="Add one hidden state to every residual stream.",
        inputs=(Param("x", "$A", ("T", "H")), STREAMS),
        outputs=(STREAMS,),
    ),
    Op(
        name="rms_norm",
        doc="x * rsqrt(mean(x^2) + eps) * weight over the last dimension, in fp32.",
        inputs=(
            Param("x", "$A", ("...", "H")),
            Param("weight", BF16, ("H",)),
        ),
        outputs=(Param("out", "$A", ("...", "H")),),
        attrs={"eps": FLOAT},
    ),
    Op(
        name="mhc_pre",
        doc="Mix the streams into a layer input and normalise it; also give the weights that put "
        "the layer output back (post, comb; comb's first index is the source stream).",
        inputs=(STREAMS, *SITE_WEIGHTS),
        outputs=SITE_INPUT,
        attrs=SITE_ATTRS,
    ),
    Op(
        name="mhc_post",
        doc="streams'[k] = post[k] * y + sum over j of comb[j, k] * streams[j].",
        inputs=SITE_OUTPUT,
        outputs=(STREAMS,),
    ),
    Op(
        name="mhc_post_pre",
        doc="mhc_post of one site, then mhc_pre of the next, without a trip through memory.",
        inputs=(*SITE_OUTPUT, *SITE_WEIGHTS),
        outputs=(STREAMS, *SITE_INPUT),
        attrs=SITE_ATTRS,
    ),
    Op(
        name="mhc_head",
        doc="Collapse the streams of the wanted rows and apply the final norm.",
        inputs=(
            STREAMS,
            Param("rows", I32, ("R",)),
            Param("fn", F32, ("M", "M*H")),
            Param("base", F32, ("M",)),
            Param("scale", F32, (1,)),
            Param("norm_weight", BF16, ("H",)),
        ),
        outputs=(Param("x", "$A", ("R", "H")),),
        attrs={"eps": FLOAT, "hc_eps": FLOAT},
    ),
    Op(
        name="add",
        doc="a + b in fp32.",
        inputs=(
            Param("a", F32, ("T", "H")),
            Param("b", "$B", ("T", "H")),
        ),
        outputs=(Param("out", "@out_dtype", ("T", "H")),),
        attrs={"out_dtype": FLOAT_TYPE},
    ),
)
