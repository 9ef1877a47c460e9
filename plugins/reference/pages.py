"""Entries in pages: where a slot or a token lies, and reading and writing it there.

A pool is int8 `[num_pages, page_bytes]`. A block table `[layers, seqs, columns]` names pages; that of a
window class has two rings of `window_pages` columns, the window before the step and after it, and behind
them columns of pages that the step passes. Offsets are 64-bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from dsv4_trt.errors import PluginError
from dsv4_trt.plugins.reference.entries import EntryFormat


class Place(NamedTuple):
    """Where entries lie: page ids and entries inside the page, int64 of one shape."""

    pages: Tensor
    entries: Tensor


def layer_table(block_table: Tensor, layer_row: int, table_rows: Tensor) -> Tensor:
    """One layer's page ids of the step's sequences, `[seqs, columns]`."""
    return block_table[layer_row, table_rows.long()]


def slot_places(
    table: Tensor, seq_ids: Tensor, slots: Tensor, per_page: int, first_column: int = 0
) -> tuple[Tensor, Place]:
    """Token rows that write (slot and sequence not -1), and where.

    `table [seqs, columns]` is one layer's row of a block table. Slots count columns from `first_column`
    on: the `window_pages` of a window class.
    """
    rows = ((slots >= 0) & (seq_ids >= 0)).nonzero().squeeze(1)
    slots = slots[rows].long()
    columns = first_column + slots // per_page
    return rows, Place(table[seq_ids[rows].long(), columns].long(), slots % per_page)


def entry_places(table_row: Tensor, entries: Tensor, per_page: int) -> Place:
    """Where entries (int64, any shape) of one sequence lie in a class that keeps all tokens."""
    return Place(table_row[entries // per_page].long(), entries % per_page)


def older_places(
    table: Tensor, seqs: Tensor, tokens: Tensor, per_page: int, window_pages: int
) -> Place:
    """Where window rows of tokens older than the step lie; `seqs` and `tokens` are int64 of one shape."""
    columns = tokens // per_page % window_pages
    return Place(table[seqs, columns].long(), tokens % per_page)


def read(pool: Tensor, place: Place, format: EntryFormat, per_page: int) -> Tensor:
    """Entries at `place` (of shape [n]) as fp32 `[n, width]`; a missing page raises `PluginError`."""
    _check_pages(place, "reads")
    planes = _planes(pool, format, per_page)
    return format.decode(*(plane[place].view(torch.int8) for plane in planes))


def write(pool: Tensor, place: Place, format: EntryFormat, per_page: int, values: Tensor) -> None:
    """Store `values [n, width]` at `place`; a missing page raises `PluginError`."""
    if values.shape[0] == 0:
        return
    _check_pages(place, "writes")
    for plane, field in zip(_planes(pool, format, per_page), format.encode(values), strict=True):
        plane[place] = field.view(plane.dtype)


def _check_pages(place: Place, verb: str) -> None:
    if place.pages.numel() and int(place.pages.min()) < 0:
        raise PluginError(
            f"a step {verb} an entry whose block table column holds page -1; "
            "expected a page for every token of a sequence that the step uses"
        )


def _planes(pool: Tensor, format: EntryFormat, per_page: int) -> Iterator[Tensor]:
    """Views `[num_pages, per_page, field]`, in elements as wide as the layout allows."""
    start = 0
    for width in format.field_bytes:
        end = start + per_page * width
        plane = torch.unflatten(pool[:, start:end], 1, (per_page, width))
        yield plane.view(_widest(plane, width))
        start = end


def _widest(plane: Tensor, width: int) -> torch.dtype:
    steps = (plane.storage_offset(), plane.stride(0), width)
    for dtype in (torch.int64, torch.int32, torch.int16):
        if all(step % dtype.itemsize == 0 for step in steps):
            return dtype
    return torch.int8
