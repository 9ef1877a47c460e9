"""Random inputs of the kinds that several ops take, on torch's default device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dsv4_trt.kv_layout import ClassLayout, KvLayout, solve
from dsv4_trt.plugins.costs import Span
from dsv4_trt.presets import FLASH

ROPE_PAIRS = 32


def bf16(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.bfloat16)


def fp8(*shape: int) -> Tensor:
    """e4m3 codes of moderate positive and negative numbers."""
    codes = torch.randint(0x28, 0x48, shape, dtype=torch.int16)
    sign = torch.randint(0, 2, shape, dtype=torch.int16) << 7
    return (codes | sign).to(torch.uint8).view(torch.float8_e4m3fn)


def scales(*shape: int) -> Tensor:
    """e8m0 scales around 2^-8."""
    return torch.randint(116, 122, shape, dtype=torch.int8)


def inv_freq() -> Tensor:
    return 10000.0 ** (-torch.arange(ROPE_PAIRS, dtype=torch.float32) / ROPE_PAIRS)


def step(spans: tuple[Span, ...]) -> dict[str, Tensor]:
    """The inputs that say which row is whose; sequence s has row s of the block tables."""
    fed = np.array([span.fed for span in spans])
    lengths = np.array([span.length for span in spans])
    edges = np.concatenate(([0], fed.cumsum()))
    owner = np.repeat(np.arange(len(spans)), fed)
    found = {
        "positions": np.arange(edges[-1]) - edges[owner] + (lengths - fed)[owner],
        "seq_ids": owner,
        "table_rows": np.arange(len(spans)),
        "query_start": edges,
        "seq_lens": lengths,
    }
    return {name: torch.tensor(values, dtype=torch.int32) for name, values in found.items()}


def layout(kv: str = "fp8", indexer: str = "fp4") -> KvLayout:
    """How the caches of Flash lie in pages."""
    return solve(FLASH, kv, indexer)


def kv_pages(count: int, page_bytes: int, per_page: int) -> Tensor:
    """Pages of fp8 entries: numbers of moderate size, scales of 2^-7."""
    pages = torch.randint(0x28, 0x48, (count, page_bytes), dtype=torch.int8)
    rows = pages[:, : per_page * 576].unflatten(1, (per_page, 576))
    rows[..., 448:] = bf16(count, per_page, ROPE_PAIRS * 2).view(torch.int8)
    pages[:, per_page * 576 : per_page * 584] = 120
    return pages


def index_pages(count: int, kv: ClassLayout) -> Tensor:
    """Pages of indexer keys, fp4 or fp8."""
    pages = torch.randint(-128, 128, (count, kv.page_bytes), dtype=torch.int8)
    if kv.format == "fp8":
        keys = kv.entries_per_page * 128
        pages[:, :keys] = fp8(count, keys).view(torch.int8)
        scale = torch.rand(count, kv.entries_per_page) + 0.5
        pages[:, keys : keys + 4 * kv.entries_per_page] = scale.view(torch.int8)
    else:
        keys = kv.entries_per_page * 64
        pages[:, keys : keys + 4 * kv.entries_per_page] = 120
    return pages


def block_table(rows: int, columns: int, num_pages: int) -> Tensor:
    """One layer's table of shuffled page ids; sequences share pages where there are too few."""
    needed = rows * columns
    ids = [torch.randperm(num_pages) for _ in range(-(-needed // num_pages))]
    return torch.cat(ids)[:needed].int().view(1, rows, columns)


def paged(spans: tuple[Span, ...], kv: ClassLayout, most_bytes: int = 4 << 30) -> tuple[int, int]:
    """Columns of the table and pages of the pool for these sequences, within `most_bytes`."""
    columns = max(1, max(kv.pages_for(span.length) for span in spans))
    return columns, min(len(spans) * columns, most_bytes // kv.page_bytes)
