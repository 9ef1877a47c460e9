"""The report of `dsv4-trt plan` as tables."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table

from dsv4_trt.cli.plan_report import Report
from dsv4_trt.cli.sizes import gib
from dsv4_trt.cli.tables import plain_console


def print_plan(report: Report, model_limit: int) -> None:
    """Print what the report holds; `model_limit` is the longest sequence the model is made for."""
    console = plain_console()
    for line in (*_head(report), ""):
        console.print(escape(line), soft_wrap=True)
    for table in (_classes(report), _pools(report)):
        console.print(table)
    for line in _lengths(report, model_limit):
        console.print(line, soft_wrap=True)
    for table in (_concurrency(report), _formats(report)):
        console.print(table)


def title(report: Report) -> str:
    """Model and formats in one line."""
    formats = f"KV {report['kv_cache_dtype']}, indexer {report['indexer_cache_dtype']}"
    return f"{report['model']}, {formats}, {'with' if report['mtp'] else 'no'} MTP"


def tokens(count: int) -> str:
    """A length as 8K or 1M where it is a round one."""
    for unit, size in (("M", 1 << 20), ("K", 1 << 10)):
        if count % size == 0:
            return f"{count // size}{unit}"
    return f"{count:,}"


def _head(report: Report) -> tuple[str, ...]:
    memory = report["memory"]
    mix = ",".join(f"{load['count']}x{tokens(load['length'])}" for load in report["mix"])
    return (
        f"{title(report)}, tp_size {report['tp_size']}, moe_ep_size {report['moe_ep_size']}",
        f"memory of one rank: {gib(memory['device_bytes'])}, weights {gib(memory['weight_bytes'])}, "
        f"KV {gib(memory['kv_bytes'])} ({memory['free_fraction']:g} of the rest)",
        f"pools solved for {mix} and one sequence of max_seq_len {report['max_seq_len']:,}; "
        f"max_batch_size {report['max_batch_size']:,}",
    )


def _classes(report: Report) -> Table:
    table = _table(
        "classes: their pages, and what a token and the window of a sequence cost",
        ("class", "pool", "format"),
        ("layers", "entries", "tokens", "raw B", "page B", "waste", "B/token", "window B"),
    )
    for row in report["classes"]:
        table.add_row(
            *(row["cache_class"], row["bucket"], row["format"], str(row["num_layers"])),
            *(f"{row[key]:,}" for key in ("entries_per_page", "tokens_per_page", "raw_bytes")),
            *(f"{row['page_bytes']:,}", f"{row['waste_bytes'] / row['page_bytes']:.1%}"),
            *(_or_dash(row["bytes_per_token"], ",.2f"), _or_dash(row["window_bytes"], ",")),
        )
    table.add_section()
    totals = (f"{report['bytes_per_token']:,.2f}", f"{report['window_bytes']:,}")
    table.add_row("all", *[""] * 8, *totals)
    return table


def _pools(report: Report) -> Table:
    table = _table("pools", ("pool",), ("page B", "pages", "bytes", "share"))
    for row in report["pools"]:
        size = (f"{row['page_bytes']:,}", f"{row['num_pages']:,}", gib(row["num_bytes"]))
        table.add_row(row["bucket"], *size, f"{row['share']:.1%}")
    table.add_section()
    table.add_row("all", "", "", gib(report["memory"]["pool_bytes"]), "")
    return table


def _lengths(report: Report, model_limit: int) -> tuple[str, ...]:
    longest = report["contexts"][-1]
    return (
        f"largest context: the pools hold one sequence of {report['largest_context']:,} tokens; "
        f"max_seq_len is {report['max_seq_len']:,}, the model's limit {model_limit:,}",
        f"one sequence of {tokens(longest['length'])}: {gib(longest['page_bytes'])}, "
        f"{longest['payload_bytes'] / longest['page_bytes']:.1%} of it entries; DeepSeek-V3.2 would "
        f"take {gib(longest['v32_bytes'])} in bf16",
    )


def _concurrency(report: Report) -> Table:
    table = _table("concurrency", (), ("tokens each", "fit", "run"), ("limited by",))
    for row in report["concurrency"]:
        counts = (tokens(row["length"]), f"{row['num_fit']:,}", f"{row['num_run']:,}")
        table.add_row(*counts, row["limited_by"])
    return table


def _formats(report: Report) -> Table:
    table = _table(
        "formats in the same memory",
        ("KV", "indexer"),
        ("B/token", "window B", "largest context", "fit at 128K"),
        ("limited by",),
    )
    chosen = (report["kv_cache_dtype"], report["indexer_cache_dtype"])
    for row in report["formats"]:
        pair = (row["kv_cache_dtype"], row["indexer_cache_dtype"])
        table.add_row(
            *pair,
            *(f"{row['bytes_per_token']:,.2f}", f"{row['window_bytes']:,}"),
            *(f"{row['largest_context']:,}", f"{row['num_fit']:,}", row["limited_by"] or "-"),
            style="bold" if pair == chosen else None,
        )
    return table


def _table(
    name: str, left: tuple[str, ...], right: tuple[str, ...], last: tuple[str, ...] = ()
) -> Table:
    """An empty table: columns of words, of numbers, and `last` of words again."""
    table = Table(title=name, title_justify="left")
    for column in left:
        table.add_column(column)
    for column in right:
        table.add_column(column, justify="right", overflow="fold")
    for column in last:
        table.add_column(column, overflow="fold")
    return table


def _or_dash(value: Any, spec: str) -> str:
    return format(value, spec) if value else "-"
