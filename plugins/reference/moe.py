"""The router and the clamped SwiGLU experts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dsv4_trt.plugins.reference.codecs import FLOATS, dequantize, e2m1_decode
from dsv4_trt.plugins.reference.linear import linear_input, weight_values
from dsv4_trt.plugins.reference.ranking import best


def router(
    *,
    x: Tensor,
    gate: Tensor,
    bias: Tensor | None = None,
    tid2eid: Tensor | None = None,
    token_ids: Tensor | None = None,
    by: str,
    topk: int,
    route_scale: float,
) -> dict[str, Tensor]:
    """`x [T, H]` -> `expert_ids [T, topk]` int32 and `weights [T, topk]` fp32.

    `by` "token" looks the experts up in `tid2eid [V, topk]`, "score" takes the best biased scores.
    """
    scores = F.softplus(F.linear(x.float(), gate.float())).sqrt()
    if by == "token":
        assert tid2eid is not None
        assert token_ids is not None
        picked = tid2eid[token_ids.long()].long()
    else:
        assert bias is not None
        picked = best(scores + bias, topk)
    weights = scores.gather(1, picked)
    weights = weights / weights.sum(-1, keepdim=True) * route_scale
    return {"expert_ids": picked.int(), "weights": weights}


def experts(
    *,
    x: Tensor,
    expert_ids: Tensor,
    weights: Tensor,
    expert_map: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    weight_format: str,
    width: int,
    pack: int,
    scale_rows: int,
    scale_cols: int,
    act: str,
    swiglu_limit: float,
) -> dict[str, Tensor]:
    """The routed experts of this rank -> `out [T, H]` fp32; ids that live elsewhere add nothing."""
    decode = _fp4_values if weight_format == "fp4" else weight_values
    known = (expert_ids >= 0) & (expert_ids < expert_map.shape[0])
    local = expert_map[expert_ids.clamp(0, expert_map.shape[0] - 1).long()]
    local = local.masked_fill(~known, -1)
    inputs = linear_input(x, act)
    out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for expert in torch.unique(local).tolist():
        if expert < 0:
            continue
        rows, picks = (local == expert).nonzero(as_tuple=True)
        inner = _swiglu(
            F.linear(inputs[rows], decode(w13[expert], w13_scale[expert])).to(x.dtype), swiglu_limit
        )
        inner = (inner * weights[rows, picks].unsqueeze(-1)).to(x.dtype)
        y = F.linear(linear_input(inner, act), decode(w2[expert], w2_scale[expert])).to(x.dtype)
        out.index_add_(0, rows, y.float())
    return {"out": out}


def shared_expert(
    *,
    x: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    width: int,
    act: str,
    swiglu_limit: float,
    out_dtype: str,
) -> dict[str, Tensor]:
    """The expert that every token passes, `x [T, H]` -> `out [T, H]`."""
    both = F.linear(linear_input(x, act), weight_values(w13, w13_scale)).to(x.dtype)
    inner = _swiglu(both, swiglu_limit).to(x.dtype)
    out = F.linear(linear_input(inner, act), weight_values(w2, w2_scale))
    return {"out": out.to(FLOATS[out_dtype])}


def add(*, a: Tensor, b: Tensor, out_dtype: str) -> dict[str, Tensor]:
    """`a + b` in fp32."""
    return {"out": (a + b.float()).to(FLOATS[out_dtype])}


def _swiglu(both: Tensor, limit: float) -> Tensor:
    """silu(gate) * up in fp32 from `[n, gate and up]`; up is clamped on both sides, gate from above."""
    gate, up = both.float().chunk(2, dim=-1)
    return F.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)


def _fp4_values(packed: Tensor, scale: Tensor) -> Tensor:
    return dequantize(e2m1_decode(packed), scale)
