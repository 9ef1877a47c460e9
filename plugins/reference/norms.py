"""RMS norms: fp32 inside, the weight applied before the cast back."""

from __future__ import annotations

import torch
from torch import Tensor


def normalise(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm of the last dimension, `x / sqrt(mean(x^2) + eps) * weight`; keeps the dtype of `x`."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (weight.float() * wide).to(x.dtype)


def rms_norm(*, x: Tensor, weight: Tensor, eps: float) -> dict[str, Tensor]:
    """`x [..., H]`, `weight [H]` -> `out` like `x`."""
    return {"out": normalise(x, weight, eps)}


def qkv_norm(*, x: Tensor, q_weight: Tensor, kv_weight: Tensor, eps: float) -> dict[str, Tensor]:
    """Split `x [T, Q + D]` into `qr [T, Q]` and `kv [T, D]`, each normalised."""
    q, kv = torch.split(x, [q_weight.shape[0], kv_weight.shape[0]], dim=-1)
    return {"qr": normalise(q, q_weight, eps), "kv": normalise(kv, kv_weight, eps)}
