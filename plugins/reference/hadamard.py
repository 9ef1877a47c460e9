"""The normalised Walsh-Hadamard transform in Sylvester order, as the indexer applies it."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor


def hadamard(x: Tensor) -> Tensor:
    """Transform the last dimension, a power of two, in fp32; the result has the dtype of `x`."""
    signs = _signs(x.shape[-1], x.device)
    return torch.matmul(x.float(), signs).mul_(x.shape[-1] ** -0.5).to(x.dtype)


@cache
def _signs(size: int, device: torch.device) -> Tensor:
    signs = torch.ones(1, 1, device=device)
    while signs.shape[0] < size:
        signs = torch.cat((torch.cat((signs, signs), 1), torch.cat((signs, -signs), 1)))
    return signs
