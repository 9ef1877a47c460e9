"""Sparse attention and the indexer's scores with their best entries, over fp8 and fp4 pages."""

from __future__ import annotations

from typing import Any

import torch

from dsv4_trt.kv_layout import CacheClass
from dsv4_trt.plugins.costs import Span
from op_speed_parts import inputs, peers_attention
from op_speed_parts.case import Arguments, Case

HEADS, DIM, WINDOW, PICKS = 64, 512, 128, 512
INDEX_HEADS, INDEX_DIM = 64, 128
CLASSES = {4: CacheClass.CSA, 128: CacheClass.HCA}
NAMES = {8192: "8K", 131072: "128K", 1 << 20: "1M"}
CHUNK = 8192


def cases() -> list[Case]:
    found = [
        _attention(ratio, tuple(Span(length, 1) for _ in range(batch)))
        for ratio in CLASSES
        for length in (8192, 1 << 20)
        for batch in (1, 8, 32, 128)
    ]
    found += [
        _attention(ratio, (Span(prefix + CHUNK, CHUNK),))
        for ratio in CLASSES
        for prefix in (0, 131072)
    ]
    found += [
        _index(format, tuple(Span(length, 1) for _ in range(batch)))
        for format in ("fp8", "fp4")
        for length in (8192, 131072, 1 << 20)
        for batch in (1, 8, 128)
    ]
    found += [
        _index(format, (Span(prefix + CHUNK, CHUNK),))
        for format in ("fp8", "fp4")
        for prefix in (0, 131072)
    ]
    return found


def _label(spans: tuple[Span, ...]) -> str:
    length, fed = spans[0]
    if fed == 1:
        return f"decode B={len(spans)} L={NAMES[length]}"
    return f"prefill {fed} on {(length - fed) >> 10}K"


def _attention(ratio: int, spans: tuple[Span, ...]) -> Case:
    share_pool = ratio == 4 and sum(span.length for span in spans) > 1 << 19
    quick = len(spans) in (1, 128) if spans[0].fed == 1 else spans[0].length == CHUNK
    return Case(
        op="sparse_attention",
        label=f"{CLASSES[ratio]} {_label(spans)}",
        make=lambda: _attention_arguments(ratio, spans),
        spans=spans,
        shared=frozenset({"sinks", "inv_freq"} | ({"pool"} if share_pool else set())),
        # other picks in the same large pool are other memory
        vary=(lambda a: a | {"topk": picks(a["positions"])}) if share_pool else None,
        peers=peers_attention.attention(ratio, spans),
        quick=quick,
    )


def picks(positions: torch.Tensor) -> torch.Tensor:
    """Random visible entries in ascending order, -1 behind them."""
    visible = ((positions + 1) // 4).unsqueeze(1)
    most = int(visible.max()) if positions.device.type != "meta" else 2 * PICKS
    parts = []
    for some in visible.split(2048):
        score = torch.rand(len(some), max(most, PICKS))
        hidden = torch.arange(score.shape[1]) >= some
        best = score.masked_fill_(hidden, -1.0).topk(PICKS, dim=1)
        none = best.values < 0
        ids = best.indices.masked_fill(none, 1 << 30).sort(1).values
        parts.append(ids.masked_fill(ids == 1 << 30, -1).int())
    return torch.cat(parts)


def _attention_arguments(ratio: int, spans: tuple[Span, ...]) -> Arguments:
    layout = inputs.layout()
    swa, kv = layout[CacheClass.SWA], layout[CLASSES[ratio]]
    step = inputs.step(spans)
    tokens, ring = len(step["positions"]), 2 * swa.window_pages
    columns, num_pages = inputs.paged(spans, kv)
    swa_pages = len(spans) * ring
    decodes = len(spans) if spans[0].fed == 1 else 0
    arguments: dict[str, Any] = {
        "q": inputs.bf16(tokens, HEADS, DIM),
        "kv": inputs.bf16(tokens, DIM),
        "sinks": torch.randn(HEADS),
        "inv_freq": inputs.inv_freq(),
        **step,
        "decode_carrier": torch.zeros(decodes, dtype=torch.int8),
        "swa_block_table": inputs.block_table(len(spans), ring, swa_pages),
        "swa_pool": inputs.kv_pages(swa_pages, swa.page_bytes, swa.entries_per_page),
        "block_table": inputs.block_table(len(spans), columns, num_pages),
        "pool": inputs.kv_pages(num_pages, kv.page_bytes, kv.entries_per_page),
    }
    if ratio == 4:
        arguments["topk"] = picks(step["positions"])
    return arguments | {
        "ratio": ratio,
        "sm_scale": DIM**-0.5,
        "window": WINDOW,
        "format": "fp8",
        "prob_dtype": "BF16",
        "inverse_rope": False,
        "swa_layer_row": 0,
        "swa_entries_per_page": swa.entries_per_page,
        "swa_window_pages": swa.window_pages,
        "layer_row": 0,
        "entries_per_page": kv.entries_per_page,
    }


def _index(format: str, spans: tuple[Span, ...]) -> Case:
    quick = spans[0].length in (8192, 1 << 20) and len(spans) in (1, 128)
    return Case(
        op="index_topk",
        label=f"{format} {_label(spans)}",
        make=lambda: _index_arguments(format, spans),
        spans=spans,
        peers=peers_attention.index(spans),
        quick=quick and format == "fp4",
    )


def _index_arguments(format: str, spans: tuple[Span, ...]) -> Arguments:
    kv = inputs.layout(indexer=format)[CacheClass.INDEXER]
    step = inputs.step(spans)
    tokens = len(step["positions"])
    columns, num_pages = inputs.paged(spans, kv, 16 << 30)
    arguments: dict[str, Any] = {
        "weights": torch.randn(tokens, INDEX_HEADS),
        **step,
        "decode_carrier": torch.zeros(len(spans) if spans[0].fed == 1 else 0, dtype=torch.int8),
        "block_table": inputs.block_table(len(spans), columns, num_pages),
        "pool": inputs.index_pages(num_pages, kv),
    }
    if format == "fp8":
        arguments["q"] = inputs.fp8(tokens, INDEX_HEADS, INDEX_DIM)
    else:
        shape = (tokens, INDEX_HEADS, INDEX_DIM // 2)
        arguments["q"] = torch.randint(-128, 128, shape, dtype=torch.int8)
        arguments["q_scale"] = inputs.scales(tokens, INDEX_HEADS, INDEX_DIM // 32)
    return arguments | {
        "topk": PICKS,
        "ratio": 4,
        "head_dim": INDEX_DIM,
        "format": format,
        "score_dtype": "BF16",
        "layer_row": 0,
        "entries_per_page": kv.entries_per_page,
    }
