"""The residual streams' mixing written with torch's ops, twenty Sinkhorn iterations and all."""

from __future__ import annotations

import torch
from torch import Tensor

from op_speed_parts.case import Arguments


def _pre(streams: Tensor, a: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    count = streams.shape[1]
    flat = streams.float().flatten(1)
    size = torch.rsqrt(flat.square().mean(-1, keepdim=True) + a["eps"])
    mix = (flat @ a["fn"].t()) * size
    first, post, comb = mix.split((count, count, count * count), 1)
    bases, scale, eps = a["base"].split((count, count, count * count)), a["scale"], a["hc_eps"]
    first = torch.sigmoid(first * scale[0] + bases[0]) + eps
    post = 2 * torch.sigmoid(post * scale[1] + bases[1])
    comb = (comb * scale[2] + bases[2]).view(-1, count, count).softmax(-1) + eps
    comb = comb / (comb.sum(1, keepdim=True) + eps)
    for _ in range(a["iters"] - 1):
        comb = comb / (comb.sum(2, keepdim=True) + eps)
        comb = comb / (comb.sum(1, keepdim=True) + eps)
    x = (first.unsqueeze(-1) * streams.float()).sum(1).bfloat16().float()
    x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + a["eps"]) * a["norm_weight"].float()
    return x.bfloat16(), post, comb


def _post(a: Arguments) -> Tensor:
    mixed = torch.einsum("tjk,tjh->tkh", a["comb"], a["streams"].float())
    return (a["post"].unsqueeze(-1) * a["y"].float().unsqueeze(1) + mixed).bfloat16()


EAGER = {
    "mhc_pre": lambda a: lambda: _pre(a["streams"], a),
    "mhc_post": lambda a: lambda: _post(a),
    "mhc_post_pre": lambda a: lambda: _pre(_post(a), a),
}
