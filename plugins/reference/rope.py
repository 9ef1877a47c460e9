"""Rotary positions: adjacent pairs in the last channels, angles in fp32."""

from __future__ import annotations

from torch import Tensor


def rotate_tail(x: Tensor, positions: Tensor, inv_freq: Tensor, *, inverse: bool = False) -> Tensor:
    """Rotate the last `2 * pairs` channels of `x [T, ..., D]` by `positions [T] * inv_freq [pairs]`.

    Pair i is channels (2i, 2i + 1) of the tail. Computed in fp32, returned in the dtype of `x`.
    """
    angles = positions.float().unsqueeze(-1) * inv_freq
    angles = angles.view(-1, *(1,) * (x.dim() - 2), inv_freq.shape[0])
    cos, sin = angles.cos(), angles.sin()
    if inverse:
        sin = -sin
    tail = x.shape[-1] - 2 * inv_freq.shape[0]
    even, odd = x[..., tail::2].float(), x[..., tail + 1 :: 2].float()
    out = x.clone()
    out[..., tail::2] = even * cos - odd * sin
    out[..., tail + 1 :: 2] = even * sin + odd * cos
    return out
