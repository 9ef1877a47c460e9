"""Token embedding over a slice of the vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv4_trt.plugins.reference.codecs import FLOATS


def embed(
    *, token_ids: Tensor, weight: Tensor, row_offset: Tensor, out_dtype: str
) -> dict[str, Tensor]:
    """`weight [V, H]` holds the ids `row_offset[0]` and up; other ids give zeros. -> `out [T, H]`."""
    rows = token_ids.long() - row_offset.long()
    inside = (rows >= 0) & (rows < weight.shape[0])
    found = weight[rows.clamp(0, weight.shape[0] - 1)].to(FLOATS[out_dtype])
    return {"out": torch.where(inside.unsqueeze(-1), found, 0)}
