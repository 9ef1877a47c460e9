"""The device memory behind the page pools: one slab per bucket."""

from __future__ import annotations

import torch

from dsv4_trt.kv_layout import Bucket
from dsv4_trt.kv_plan import KvPlan


def allocate_slabs(plan: KvPlan, device: torch.device) -> dict[Bucket, torch.Tensor]:
    """One `int8 [num_pages, page_bytes]` tensor per bucket, uninitialised.

    Nothing relies on cleared pages: ops read only rows that the sequence itself has written.
    """
    return {
        bucket: torch.empty(
            (plan.num_pages[bucket], plan.layout.page_bytes[bucket]),
            dtype=torch.int8,
            device=device,
        )
        for bucket in Bucket
    }
