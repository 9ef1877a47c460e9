"""What `dsv4-trt plan` finds out, as plain JSON data: classes, pools, contexts, concurrency, formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dsv4_trt.cli.plan_memory import DeviceMemory
from dsv4_trt.cli.plan_source import PlanSource
from dsv4_trt.kv_layout import KvLayout, solve
from dsv4_trt.kv_mix import Load
from dsv4_trt.kv_plan import (
    KvPlan,
    concurrency,
    largest_in_memory,
    largest_sequence,
    plan_pools,
)
from dsv4_trt.kv_report import (
    V32_BYTES_PER_TOKEN,
    bytes_per_token_by_class,
    most_bytes_by_class,
    payload_bytes,
    window_bytes_by_class,
)
from dsv4_trt.precision import INDEXER_CACHE_DTYPES, KV_CACHE_DTYPES

Report = dict[str, Any]
Rows = list[Report]

LENGTHS = (8 << 10, 32 << 10, 128 << 10, 1 << 20)  # at which concurrency is reported
CONTEXTS = tuple(8192 << i for i in range(8))  # at which bytes are reported: 8K to 1M
FORMATS_LENGTH = 128 << 10  # at which formats are compared


def plan_report(source: PlanSource, memory: DeviceMemory, mix: Sequence[Load]) -> Report:
    """Everything about the pools of one rank; raises `CapacityError` if max_seq_len does not fit."""
    build = source.build
    layout = solve(source.spec, build.kv_cache_dtype, build.indexer_cache_dtype, mtp=build.mtp)
    plan = plan_pools(layout, memory.kv_bytes, mix, max_seq_len=build.max_seq_len)
    return {
        "model": source.name,
        **asdict(source.mapping),
        "kv_cache_dtype": build.kv_cache_dtype,
        "indexer_cache_dtype": build.indexer_cache_dtype,
        "mtp": build.mtp,
        "max_seq_len": build.max_seq_len,
        "max_batch_size": build.max_batch_size,
        "mix": [asdict(load) for load in mix],
        "memory": asdict(memory) | {"kv_bytes": memory.kv_bytes, "pool_bytes": plan.total_bytes},
        "classes": class_rows(layout),
        "bytes_per_token": layout.bytes_per_token(),
        "window_bytes": sum(window_bytes_by_class(layout).values()),
        "pools": pool_rows(plan),
        "largest_context": largest_sequence(plan),
        "concurrency": concurrency_rows(plan, source),
        "contexts": context_rows(layout),
        "formats": format_rows(source, memory, mix),
    }


def class_rows(layout: KvLayout) -> Rows:
    """Each cache class: its pages, and what it adds to a token and to a sequence."""
    per_token, windows = bytes_per_token_by_class(layout), window_bytes_by_class(layout)
    return [
        {
            "cache_class": str(cache_class),
            "bucket": str(kv.bucket),
            "format": kv.format,
            "num_layers": len(kv.layers),
            "window": kv.window,
            "entry_bytes": kv.entry_bytes,
            "entries_per_page": kv.entries_per_page,
            "tokens_per_page": kv.tokens_per_page,
            "raw_bytes": kv.raw_bytes,
            "page_bytes": kv.page_bytes,
            "waste_bytes": kv.page_bytes - kv.raw_bytes,
            "bytes_per_token": per_token[cache_class],
            "window_bytes": windows[cache_class],
        }
        for cache_class, kv in layout.classes.items()
    ]


def pool_rows(plan: KvPlan) -> Rows:
    """Each pool: pages, bytes, share of all pool bytes."""
    rows: Rows = []
    for bucket, pages in plan.num_pages.items():
        size = plan.layout.page_bytes[bucket]
        rows.append(
            {
                "bucket": str(bucket),
                "page_bytes": size,
                "num_pages": pages,
                "num_bytes": pages * size,
                "share": pages * size / plan.total_bytes,
            }
        )
    return rows


def concurrency_rows(plan: KvPlan, source: PlanSource) -> Rows:
    """Sequences of each length that the pools hold, and that the engine runs at once."""
    rows: Rows = []
    build = source.build
    for length in sorted({*LENGTHS, min(build.max_seq_len, max(LENGTHS))}):
        found = concurrency(plan, length)
        fit, limit = found.sequences, str(found.limited_by)
        run = min(fit, build.max_batch_size)
        if length > build.max_seq_len:
            run, limit = 0, "max_seq_len"
        elif run < fit:
            limit = "max_batch_size"
        rows.append({"length": length, "num_fit": fit, "num_run": run, "limited_by": limit})
    return rows


def context_rows(layout: KvLayout) -> Rows:
    """Bytes of one sequence by class at each length, windows at their most."""
    rows: Rows = []
    for length in CONTEXTS:
        most = most_bytes_by_class(layout, length)
        rows.append(
            {
                "length": length,
                "classes": {str(cache_class): size for cache_class, size in most.items()},
                "page_bytes": sum(most.values()),
                "payload_bytes": payload_bytes(layout, length),
                "v32_bytes": length * V32_BYTES_PER_TOKEN,
            }
        )
    return rows


def format_rows(source: PlanSource, memory: DeviceMemory, mix: Sequence[Load]) -> Rows:
    """Each combination of formats in the same memory; sequences are cut to what it holds."""
    rows: Rows = []
    for kv in KV_CACHE_DTYPES:
        for indexer in INDEXER_CACHE_DTYPES:
            layout = solve(source.spec, kv, indexer, mtp=source.build.mtp)
            longest = min(source.build.max_seq_len, largest_in_memory(layout, memory.kv_bytes))
            row: Report = {
                "kv_cache_dtype": kv,
                "indexer_cache_dtype": indexer,
                "bytes_per_token": layout.bytes_per_token(),
                "window_bytes": sum(window_bytes_by_class(layout).values()),
                "holds_max_seq_len": longest == source.build.max_seq_len,
            }
            rows.append(row | _room(layout, memory.kv_bytes, mix, longest))
    return rows


def _room(layout: KvLayout, kv_bytes: int, mix: Sequence[Load], longest: int) -> Report:
    if not longest:
        return {"largest_context": 0, "num_fit": 0, "limited_by": None}
    plan = plan_pools(layout, kv_bytes, cut(mix, longest), max_seq_len=longest)
    found = concurrency(plan, FORMATS_LENGTH)
    return {
        "largest_context": largest_sequence(plan),
        "num_fit": found.sequences,
        "limited_by": str(found.limited_by),
    }


def cut(mix: Sequence[Load], longest: int) -> tuple[Load, ...]:
    """The mix with its sequences cut to `longest` tokens."""
    return tuple(Load(load.count, min(load.length, longest)) for load in mix)
