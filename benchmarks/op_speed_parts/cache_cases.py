"""The ops between projections and caches: compressor, window insert, indexer queries, inverse rotation."""

from __future__ import annotations

from typing import Any

import torch

from dsv4_trt.kv_layout import CacheClass
from dsv4_trt.plugins.costs import Span
from op_speed_parts import eager_cache, inputs, peers_cache
from op_speed_parts.case import Arguments, Case, Peer

TOKENS = (1, 8, 32, 128, 512, 8192)
QUICK = (1, 128, 8192)
HEADS, DIM, INDEX_HEADS, INDEX_DIM = 64, 512, 64, 128
SHAPES = {  # ratio, overlap, width
    CacheClass.CSA: (4, 2, 512),
    CacheClass.INDEXER: (4, 2, 128),
    CacheClass.HCA: (128, 1, 512),
}
CONSTANT = frozenset({"inv_freq", "ape", "norm_weight"})


def cases() -> list[Case]:
    decodes = [_compress(CacheClass.CSA, tokens) for tokens in TOKENS]
    prefills = [_compress(cls, 8192, prefill=True) for cls in SHAPES]
    others = [
        _compress(cls, tokens)
        for cls in (CacheClass.INDEXER, CacheClass.HCA)
        for tokens in TOKENS
        if tokens < 8192
    ]
    rows = [make(tokens) for make in (_inverse, _insert, _indexer_q) for tokens in TOKENS]
    return [*decodes, *prefills, *rows, *others]


def _compress(cls: CacheClass, tokens: int, *, prefill: bool = False) -> Case:
    ratio, overlap, width = SHAPES[cls]
    lanes = overlap * width
    entry = {CacheClass.INDEXER: 68}.get(cls, 584)
    if prefill:
        spans = (Span(tokens, tokens),)
        pages = tokens / ratio * entry
        label = f"{cls} prefill T={tokens}"
    else:
        last = 127 if cls is CacheClass.HCA else 1027
        spans = tuple(Span(last + 1, 1) for _ in range(tokens))
        terms = (ratio * overlap - 1) * 2 * width  # older values and gates of each entry
        pages = tokens * (8 * lanes + 4 * terms + entry)  # the state row written, terms, entry
        label = f"{cls} decode, all complete, T={tokens}"
    csa = cls is CacheClass.CSA
    return Case(
        op="compress",
        label=label,
        make=lambda: _compress_arguments(cls, spans),
        spans=spans,
        shared=CONSTANT,
        page_bytes=pages,
        peers=peers_cache.compressor(tokens, prefill) if csa else (),
        eager=(eager_cache.compress_prefill if prefill else eager_cache.compress_decode)
        if csa
        else None,
        quick=csa and tokens in QUICK,
    )


def _compress_arguments(cls: CacheClass, spans: tuple[Span, ...]) -> Arguments:
    ratio, overlap, width = SHAPES[cls]
    layout = inputs.layout()
    kv, state = layout[cls], layout[CacheClass(f"{cls}_state")]
    step = inputs.step(spans)
    positions, tokens = step["positions"], len(step["positions"])
    columns, num_pages = inputs.paged(spans, kv)
    ring = state.window_pages
    slots = ring * state.entries_per_page
    left = step["seq_lens"][step["seq_ids"].long()] - positions  # 1 for a sequence's last token
    kept = left <= (8 if overlap == 2 else 0) if spans[0].fed > 1 else left > 0
    rows = torch.randn(len(spans) * ring, state.page_bytes // 4)
    held = torch.arange(len(spans) * ring, dtype=torch.int32).view(1, len(spans), ring)
    return {
        "kv_gate": torch.randn(tokens, 2 * overlap * width),
        "ape": torch.randn(ratio, overlap * width),
        "norm_weight": inputs.bf16(width),
        "inv_freq": inputs.inv_freq(),
        **step,
        "state_slot_mapping": torch.where(kept, positions % slots, -1).int(),
        "state_block_table": torch.cat((held, held), 2),
        "state_pool": rows.view(torch.int8),
        "slot_mapping": torch.where(positions % ratio == ratio - 1, positions // ratio, -1).int(),
        "block_table": inputs.block_table(len(spans), columns, num_pages),
        "pool": torch.zeros(num_pages, kv.page_bytes, dtype=torch.int8),
        "ratio": ratio,
        "overlap": overlap,
        "width": width,
        "hadamard": cls is CacheClass.INDEXER,
        "act_dtype": "BF16",
        "format": kv.format,
        "eps": 1e-6,
        "layer_row": 0,
        "entries_per_page": kv.entries_per_page,
        "state_entries_per_page": state.entries_per_page,
        "state_window_pages": ring,
    }


def _positions(tokens: int) -> torch.Tensor:
    return torch.randint(0, 8192, (tokens,), dtype=torch.int32)


def _inverse(tokens: int) -> Case:
    def make() -> Arguments:
        x = inputs.bf16(tokens, HEADS, DIM)
        return {"x": x, "inv_freq": inputs.inv_freq(), "positions": _positions(tokens)}

    return _row_case("inv_rope_quant", tokens, make, peers_cache.inverse(tokens))


def _insert(tokens: int) -> Case:
    def make() -> Arguments:
        kv = inputs.layout()[CacheClass.SWA]
        pages = -(-tokens // kv.entries_per_page)
        return {
            "q": inputs.bf16(tokens, HEADS * DIM),
            "kv": inputs.bf16(tokens, DIM),
            "inv_freq": inputs.inv_freq(),
            "positions": _positions(tokens),
            "seq_ids": torch.zeros(tokens, dtype=torch.int32),
            "table_rows": torch.zeros(1, dtype=torch.int32),
            "slot_mapping": torch.randperm(tokens).int(),
            "block_table": inputs.block_table(1, 2 * pages, 2 * pages),
            "pool": torch.zeros(2 * pages, kv.page_bytes, dtype=torch.int8),
            "num_heads": HEADS,
            "D": DIM,
            "eps": 1e-6,
            "format": "fp8",
            "layer_row": 0,
            "entries_per_page": kv.entries_per_page,
            "window_pages": pages,
        }

    return _row_case("qkv_rope_insert", tokens, make, peers_cache.insert(tokens), tokens * 584.0)


def _indexer_q(tokens: int) -> Case:
    def make() -> Arguments:
        return {
            "q": inputs.bf16(tokens, INDEX_HEADS * INDEX_DIM),
            "weights": inputs.bf16(tokens, INDEX_HEADS),
            "inv_freq": inputs.inv_freq(),
            "positions": _positions(tokens),
            "num_heads": INDEX_HEADS,
            "head_dim": INDEX_DIM,
            "row": INDEX_DIM // 2,
            "format": "fp4",
            "scale": INDEX_DIM**-0.5 * INDEX_HEADS**-0.5,
        }

    return _row_case("indexer_q", tokens, make, peers_cache.indexer_q(tokens))


def _row_case(
    op: str, tokens: int, make: Any, peers: tuple[Peer, ...], page_bytes: float = 0.0
) -> Case:
    return Case(
        op=op,
        label=f"T={tokens}",
        make=make,
        shared=CONSTANT,
        page_bytes=page_bytes,
        peers=peers,
        eager=eager_cache.EAGER[op],
        quick=tokens in QUICK,
    )
