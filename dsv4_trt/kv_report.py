"""What sequences cost in a KV layout: entries that exist, and the pages that hold them. Pure numbers."""

from __future__ import annotations

from dsv4_trt.kv_layout import CacheClass, KvLayout
from dsv4_trt.kv_plan import most_pages

# DeepSeek-V3.2, for comparison: 61 layers, each (512 + 64) bf16 of MLA and 128 bf16 of indexer
V32_BYTES_PER_TOKEN = 61 * 1408


def payload_by_class(layout: KvLayout, num_tokens: int) -> dict[CacheClass, int]:
    """Bytes of the entries that a sequence of `num_tokens` holds at rest, over all layers."""
    found = {}
    for cache_class, kv in layout.classes.items():
        entries = (num_tokens - kv.first_token(num_tokens)) // kv.ratio
        found[cache_class] = entries * kv.entry_bytes * len(kv.layers)
    return found


def payload_bytes(layout: KvLayout, num_tokens: int) -> int:
    """Bytes of all entries, not pages, that a sequence of `num_tokens` holds at rest."""
    return sum(payload_by_class(layout, num_tokens).values())


def payload_share(layout: KvLayout, num_tokens: int) -> float:
    """Part of the page bytes that a sequence of `num_tokens`, at least 1, holds at rest: its entries."""
    pages = layout.pages_per_sequence(num_tokens)
    held = sum(count * layout.page_bytes[bucket] for bucket, count in pages.items())
    return payload_bytes(layout, num_tokens) / held


def most_bytes_by_class(layout: KvLayout, num_tokens: int) -> dict[CacheClass, int]:
    """Page bytes of a sequence at rest that has come to `num_tokens`, every window at its most."""
    return {
        cache_class: most_pages(kv, num_tokens) * kv.page_bytes * len(kv.layers)
        for cache_class, kv in layout.classes.items()
    }


def bytes_per_token_by_class(layout: KvLayout) -> dict[CacheClass, float]:
    """Page bytes that each further token of a long sequence costs; 0 for windows."""
    return {
        cache_class: 0.0
        if kv.window is not None
        else kv.page_bytes * len(kv.layers) / kv.tokens_per_page
        for cache_class, kv in layout.classes.items()
    }


def window_bytes_by_class(layout: KvLayout) -> dict[CacheClass, int]:
    """Page bytes of the windows of one sequence at their most, however long it is; 0 for the rest."""
    return {
        cache_class: 0 if kv.window is None else kv.window_pages * kv.page_bytes * len(kv.layers)
        for cache_class, kv in layout.classes.items()
    }
