"""What runs over all ranks at once."""

from __future__ import annotations

from dsv4_trt.plugins.op_schema import Op, Param
from dsv4_trt.plugins.ops.common import F32, FLOAT_TYPE, INT

COLLECTIVE_OPS = (
    Op(
        name="all_reduce",
        doc="Sum over ranks in fp32.",
        inputs=(Param("x", "$X", ("T", "H")),),
        outputs=(Param("out", "@out_dtype", ("T", "H")),),
        attrs={"out_dtype": FLOAT_TYPE},
        collective=True,
    ),
    Op(
        name="all_gather",
        doc="Concatenate the ranks' columns.",
        inputs=(Param("x", F32, ("R", "cols")),),
        outputs=(Param("out", F32, ("R", "cols*world_size")),),
        attrs={"world_size": INT},
        collective=True,
    ),
)
