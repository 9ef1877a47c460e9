"""Pool sizes: how many pages of each size, for which sequences. Pure numbers, no tensors."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from dataclasses import dataclass

from dsv4_trt.kv_layout import Bucket, KvLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPlan:
    """Pool sizes: what an engine allocates its slabs from."""

    layout: KvLayout
    num_pages: MappingABC[Bucket, int]

    @property
    def total_bytes(self) -> int:
        """Bytes of the three slabs."""
        return sum(n * self.layout.page_bytes[b] for b, n in self.num_pages.items())


def plan_for_sequences(layout: KvLayout, max_seq_lens: list[int]) -> KvPlan:
    """Pools that hold sequences of these lengths at once, whatever the steps look like."""
    total = dict.fromkeys(Bucket, 0)
    for length in max_seq_lens:
        for bucket, pages in layout.peak_pages_per_sequence(length).items():
            total[bucket] += pages
    return KvPlan(layout=layout, num_pages=total)
