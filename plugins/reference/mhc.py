"""Manifold-constrained hyper-connections: four residual streams, mixed in fp32.

Rows of a projection `fn`: pre (one per stream), post (one per stream), comb (source-major square).
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsv4_trt.plugins.reference.norms import normalise


def expand_streams(*, x: Tensor, hc_mult: int) -> dict[str, Tensor]:
    """`x [T, H]` -> `streams [T, hc_mult, H]`, all equal."""
    return {"streams": x.unsqueeze(1).repeat(1, hc_mult, 1)}


def add_streams(*, x: Tensor, streams: Tensor) -> dict[str, Tensor]:
    """`x [T, H]` added to each of `streams [T, M, H]`."""
    return {"streams": streams + x.unsqueeze(1)}


def mhc_pre(
    *,
    streams: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    norm_weight: Tensor,
    eps: float,
    hc_eps: float,
    iters: int,
) -> dict[str, Tensor]:
    """`streams [T, M, H]` -> normalised input `x [T, H]`, `post [T, M]`, `comb [T, M, M]`."""
    m = streams.shape[1]
    mix = _mix(streams, fn, eps)
    pre = torch.sigmoid(mix[:, :m] * scale[0] + base[:m]) + hc_eps
    post = 2 * torch.sigmoid(mix[:, m : 2 * m] * scale[1] + base[m : 2 * m])
    logits = (mix[:, 2 * m :] * scale[2] + base[2 * m :]).view(-1, m, m)
    return {
        "x": normalise(collapse(streams, pre), norm_weight, eps),
        "post": post,
        "comb": sinkhorn(logits, iters, hc_eps),
    }


def mhc_post(*, y: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> dict[str, Tensor]:
    """`post[k] * y + sum over j of comb[j, k] * streams[j]`, rounded once."""
    kept = torch.bmm(comb.transpose(1, 2), streams.float())
    mixed = post.unsqueeze(-1) * y.float().unsqueeze(1) + kept
    return {"streams": mixed.to(streams.dtype)}


def mhc_post_pre(
    *,
    y: Tensor,
    streams: Tensor,
    post: Tensor,
    comb: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    norm_weight: Tensor,
    eps: float,
    hc_eps: float,
    iters: int,
) -> dict[str, Tensor]:
    """`mhc_post`, then `mhc_pre` of the next site on the streams it gives."""
    streams = mhc_post(y=y, streams=streams, post=post, comb=comb)["streams"]
    entered = mhc_pre(
        streams=streams,
        fn=fn,
        base=base,
        scale=scale,
        norm_weight=norm_weight,
        eps=eps,
        hc_eps=hc_eps,
        iters=iters,
    )
    return {"streams": streams, **entered}


def mhc_head(
    *,
    streams: Tensor,
    rows: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    norm_weight: Tensor,
    eps: float,
    hc_eps: float,
) -> dict[str, Tensor]:
    """Rows `rows [R]` of `streams [T, M, H]` collapsed and normalised -> `x [R, H]`."""
    wanted = streams[rows.long()]
    pre = torch.sigmoid(_mix(wanted, fn, eps) * scale[0] + base) + hc_eps
    return {"x": normalise(collapse(wanted, pre), norm_weight, eps)}


def sinkhorn(logits: Tensor, iters: int, eps: float) -> Tensor:
    """Make `logits [T, M, M]` nearly doubly stochastic: `iters` row passes, each before a column pass.

    The softmax is the first row pass, and the last pass is over columns.
    """
    comb = logits.softmax(-1) + eps
    comb /= comb.sum(-2, keepdim=True) + eps
    for _ in range(iters - 1):
        comb /= comb.sum(-1, keepdim=True) + eps
        comb /= comb.sum(-2, keepdim=True) + eps
    return comb


def collapse(streams: Tensor, pre: Tensor) -> Tensor:
    """Weighted sum of `streams [T, M, H]` by `pre [T, M]` in fp32, cast back."""
    return torch.bmm(pre.unsqueeze(1), streams.float()).squeeze(1).to(streams.dtype)


def _mix(streams: Tensor, fn: Tensor, eps: float) -> Tensor:
    flat = streams.flatten(1).float()
    return (flat @ fn.T) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps)
