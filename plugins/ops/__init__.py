"""The table of ops: everything V4 needs, one entry each. References, kernels and lowerings follow it.

Dimension names: T tokens, S sequences, H hidden, M streams, N local heads, D head channels, R logits
rows, E experts, K picks. "$A" is the activation type: bf16 in serving, fp32 in exact. Row-wise ops run on
padding rows too (their results are never used); nothing is ever written to a pool for them.
"""

from __future__ import annotations

from dsv4_trt.plugins.op_schema import Op
from dsv4_trt.plugins.ops.attention import ATTENTION_OPS
from dsv4_trt.plugins.ops.collective import COLLECTIVE_OPS
from dsv4_trt.plugins.ops.linear import LINEAR_OPS
from dsv4_trt.plugins.ops.moe import MOE_OPS
from dsv4_trt.plugins.ops.residual import RESIDUAL_OPS
from dsv4_trt.plugins.ops.sampling import SAMPLING_OPS

OPS: dict[str, Op] = {
    op.name: op
    for op in (
        *LINEAR_OPS,
        *RESIDUAL_OPS,
        *ATTENTION_OPS,
        *MOE_OPS,
        *SAMPLING_OPS,
        *COLLECTIVE_OPS,
    )
}
