"""Exact top-k with a fixed order: higher first, equal scores by lower index, NaN after every number."""

from __future__ import annotations

import torch
from torch import Tensor


def best(scores: Tensor, k: int, num_candidates: Tensor | None = None) -> Tensor:
    """Indices (int64 `[n, k]`) of the best of `scores [n, m]` fp32, best first; -1 fills up.

    `num_candidates [n]` limits row i to its first so many columns.
    """
    columns = torch.arange(scores.shape[1], device=scores.device)
    keys = (_ordered(scores) << 32) + (0xFFFFFFFF - columns)  # unique, so topk has no choice
    none = torch.iinfo(torch.int64).min
    if num_candidates is not None:
        keys = keys.masked_fill(columns >= num_candidates.unsqueeze(-1), none)
    keys, found = keys.topk(min(k, scores.shape[1]), dim=-1)
    found = found.masked_fill(keys == none, -1)
    return torch.nn.functional.pad(found, (0, k - found.shape[1]), value=-1)


def _ordered(scores: Tensor) -> Tensor:
    """int64 values in int32 range that compare like the scores; zeros are equal, NaN is least."""
    bits = (scores + 0.0).view(torch.int32)
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
    return ordered.masked_fill(scores.isnan(), torch.iinfo(torch.int32).min)
