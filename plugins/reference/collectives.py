"""Collectives over ranks that live in one process: each input is the list of the ranks' tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv4_trt.plugins.reference.codecs import FLOATS


def all_reduce(*, x: list[Tensor], out_dtype: str) -> dict[str, list[Tensor]]:
    """The sum of all ranks' `x [T, H]` in fp32, in rank order, rounded once; ranks may share it."""
    total = x[0].float()
    for part in x[1:]:
        total = total + part.to(total.device).float()
    total = total.to(FLOATS[out_dtype])
    return {"out": [total.to(part.device) for part in x]}


def all_gather(*, x: list[Tensor], world_size: int) -> dict[str, list[Tensor]]:
    """All ranks' columns side by side, `[R, cols]` -> `[R, cols * world_size]`; ranks may share it."""
    whole = torch.cat([part.to(x[0].device) for part in x], dim=-1)
    return {"out": [whole.to(part.device) for part in x]}
