"""From logits to tokens."""

from __future__ import annotations

from dsv4_trt.plugins.op_schema import Op, Param
from dsv4_trt.plugins.ops.common import F32, I32, INT

SAMPLING_OPS = (
    Op(
        name="sample",
        doc="One token a row. In this order: bitmask, bias, repetition penalty, added penalties; "
        "temperature (0: the best token, ties to the lowest id); top-k, top-p, min-p; a draw by inverse "
        "distribution. `scales`: temperature, min_p, repetition penalty. `doubles`: the bits of two "
        "doubles, top_p and the number in [0, 1) to draw with, low words first. `limits`: top_k (0: "
        "off), row of `masks` (-1: none), how many top tokens to report. Lists of a row lie from "
        "`*_start[row]` to `*_start[row + 1]`, no id twice. `logprob` and the top tokens are of the raw "
        "logits; `status` is 0, or 1 for a row that is no number, 2 for one with nothing left to choose; "
        "of such rows, and behind the last top token, ids are -1 and logprobs 0.",
        inputs=(
            Param("logits", F32, ("R", "V")),
            Param("scales", F32, ("R", 3)),
            Param("doubles", I32, ("R", 4)),
            Param("limits", I32, ("R", 3)),
            Param("masks", I32, ("masked", "words")),
            Param("bias_start", I32, ("starts",)),
            Param("bias_ids", I32, ("B",)),
            Param("bias_values", F32, ("B",)),
            Param("seen_start", I32, ("starts",)),
            Param("seen_ids", I32, ("seen",)),
            Param("penalty_start", I32, ("starts",)),
            Param("penalty_ids", I32, ("P",)),
            Param("penalty_values", F32, ("P",)),
        ),
        outputs=(
            Param("token", I32, ("R",)),
            Param("logprob", F32, ("R",)),
            Param("status", I32, ("R",)),
            Param("top_ids", I32, ("R", "num_top")),
            Param("top_logprobs", F32, ("R", "num_top")),
        ),
        attrs={"num_top": INT},
    ),
)
