"""Layouts and op arguments of a three-layer model (one layer of each kind) for op tests."""

from dataclasses import replace

import torch

from dsv4_trt.kv_layout import CacheClass, solve
from dsv4_trt.plugins.reference.entries import indexer_entry, kv_entry, plain_entry
from dsv4_trt.presets import FLASH

SPEC = replace(FLASH, num_hidden_layers=3, compress_ratios=(0, 4, 128))
FORMATS = [("fp32", "fp32"), ("bf16", "bf16"), ("fp8", "fp8"), ("fp8", "fp4")]
INV_FREQ = 10000.0 ** (-torch.arange(32) / 32)
CSA, HCA, SWA, INDEXER = (CacheClass.CSA, CacheClass.HCA, CacheClass.SWA, CacheClass.INDEXER)


def layout(kv="fp32", indexer="fp32"):
    return solve(SPEC, kv, indexer)


def ragged(step):
    """The inputs that say which row is whose."""
    return {
        n: getattr(step, n)
        for n in ("positions", "seq_ids", "table_rows", "query_start", "seq_lens")
    }


def rows_of(sequences, step, starts):
    """Concatenate each sequence's rows `[start, end)` of this step; padding rows are NaN."""
    parts = [s[a:b] for s, a, b in zip(sequences, starts, step.ends, strict=True)]
    padding = len(step.positions) - sum(len(p) for p in parts)
    return torch.cat([*parts, torch.full_like(sequences[0][:padding], torch.nan)])


def splits(total, sizes):
    """Cut `total` into chunks of these sizes, repeated; what does not fit is cut off."""
    cuts, done = [], 0
    while done < total:
        cuts.append(min(sizes[len(cuts) % len(sizes)], total - done))
        done += cuts[-1]
    return cuts


def entry_format(kv):
    """How the entries of a class become bytes."""
    if kv.cache_class.endswith("state"):
        return plain_entry("fp32", kv.entry_bytes // 4)
    if kv.cache_class is INDEXER:
        return indexer_entry(kv.format, SPEC.index_head_dim)
    return kv_entry(kv.format, SPEC.head_dim, SPEC.qk_rope_head_dim)


def changed_rows(before, after, kv):
    """(page, entry) of every entry whose bytes differ, and whether anything else does."""
    differs, start, rows = before != after, 0, set()
    for width in entry_format(kv).field_bytes:
        end = start + width * kv.entries_per_page
        field = differs[:, start:end].view(len(before), kv.entries_per_page, width).any(-1)
        rows |= {tuple(place) for place in field.nonzero().tolist()}
        start = end
    return rows, bool(differs[:, start:].any())
