"""Inputs of sparse attention with fabricated pages: any lengths, shuffled page ids, NaN bytes elsewhere."""

from dataclasses import dataclass

import torch

from dsv4_trt.plugins.reference import pages
from dsv4_trt.plugins.reference.entries import kv_entry
from tests.plugins.paged import POISON, ints
from tests.plugins.small_model import CSA, HCA, INV_FREQ, SWA, layout

ENTRIES = {4: CSA, 128: HCA}
WINDOW = 128
SPARE = 5  # pages that nothing uses


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Entry and page sizes."""

    format: str
    dim: int = 512
    rope_dim: int = 64
    swa_per_page: int
    window_pages: int
    per_page: int
    swa_page_bytes: int
    page_bytes: int

    @property
    def entry(self):
        return kv_entry(self.format, self.dim, self.rope_dim)


def real(format, ratio):
    """Pages as the layout of the real models has them."""
    classes = layout(format)
    swa, compressed = classes[SWA], classes[ENTRIES.get(ratio, CSA)]
    return Geometry(
        format=format,
        swa_per_page=swa.entries_per_page,
        window_pages=swa.window_pages,
        per_page=compressed.entries_per_page,
        swa_page_bytes=classes.page_bytes[swa.bucket],
        page_bytes=classes.page_bytes[compressed.bucket],
    )


class Pages:
    """One layer's pool and block table, written through the reference."""

    def __init__(self, geometry, per_page, page_bytes, rows, columns, generator):
        self.geometry, self.per_page = geometry, per_page
        count = rows * columns + SPARE
        self.pool = torch.full((count, page_bytes), POISON, dtype=torch.int8)
        self.table = torch.full((2, rows, columns), -1, dtype=torch.int32)
        self.free = torch.randperm(count, generator=generator).tolist()

    def write(self, row, columns, places, values):
        """Entries `places` inside the pages of `columns`, which get pages if they have none."""
        for column in sorted(set(columns.tolist())):
            if self.table[1, row, column] < 0:
                self.table[1, row, column] = self.free.pop()
        where = pages.Place(self.table[1, row, columns].long(), places)
        pages.write(self.pool, where, self.geometry.entry, self.per_page, values)


class Case:
    """One call. Sequence s held `starts[s]` tokens and feeds `counts[s]`; None is a padding sequence with
    one padding row. `columns` pads the table of compressed entries, `padding` rows follow at the end."""

    def __init__(
        self,
        geometry,
        ratio,
        heads,
        starts,
        counts=None,
        *,
        picks=512,
        hostile=False,
        columns=0,
        padding=0,
        decodes=0,
        dtype=torch.bfloat16,
        prob_dtype=None,
        inverse_rope=True,
        seed=0,
    ):
        self.geometry, self.ratio = geometry, ratio
        self.generator = torch.Generator().manual_seed(seed)
        self.starts, self.counts = starts, counts or [1] * len(starts)
        self.columns = columns
        self.rows = torch.randperm(len(starts) + 2, generator=self.generator)[: len(starts)]
        step = self._step(padding)
        tokens, dim = len(step["positions"]), geometry.dim
        more = {"block_table": None, "pool": None, "topk": None}
        if ratio:
            entries = self._entries()
            more = {"block_table": entries.table, "pool": entries.pool, "topk": None}
        if ratio == 4:
            more["topk"] = self._picks(step["positions"], picks, hostile)
        window = self._window()
        prob = "F32" if dtype is torch.float32 else "BF16"
        self.arguments = {
            "q": (2 * self.random(tokens, heads, dim)).to(dtype),
            "kv": self.random(tokens, dim).to(dtype),
            "sinks": self.random(heads),
            "inv_freq": INV_FREQ[: geometry.rope_dim // 2].clone(),
            **step,
            "decode_carrier": torch.zeros(decodes, dtype=torch.int8),
            "swa_block_table": window.table,
            "swa_pool": window.pool,
            **more,
            "ratio": ratio,
            "sm_scale": dim**-0.5,
            "window": WINDOW,
            "format": geometry.format,
            "prob_dtype": prob_dtype or prob,
            "inverse_rope": inverse_rope,
            "swa_layer_row": 1,
            "swa_entries_per_page": geometry.swa_per_page,
            "swa_window_pages": geometry.window_pages,
            "layer_row": 1,
            "entries_per_page": geometry.per_page,
        }

    def random(self, *shape):
        return torch.randn(*shape, generator=self.generator)

    @property
    def real_rows(self):
        return self.arguments["seq_ids"] >= 0

    def _step(self, padding):
        positions, seq_ids, edges = [], [], [0]
        for seq, (start, count) in enumerate(zip(self.starts, self.counts, strict=True)):
            rows = [0] if start is None else range(start, start + count)
            positions += rows
            seq_ids += [-1 if start is None else seq] * len(rows)
            edges.append(len(positions))
        pairs = zip(self.starts, self.counts, strict=True)
        return {
            "positions": ints([*positions, *[0] * padding]),
            "seq_ids": ints([*seq_ids, *[-1] * padding]),
            "table_rows": self.rows.int(),
            "query_start": ints(edges),
            "seq_lens": ints([0 if s is None else s + c for s, c in pairs]),
        }

    def _window(self):
        g, rows = self.geometry, len(self.starts) + 2
        columns = 2 * g.window_pages + 3
        window = Pages(g, g.swa_per_page, g.swa_page_bytes, rows, columns, self.generator)
        for row, start in zip(self.rows, self.starts, strict=True):
            if start:
                tokens = torch.arange(max(0, start - WINDOW + 1), start)
                ring = tokens // g.swa_per_page % g.window_pages
                values = self.random(len(tokens), g.dim)
                window.write(row, ring, tokens % g.swa_per_page, values)
        window.table[1, :, g.window_pages :] = window.free[0]  # the ring after the step: of no use
        return window

    def _entries(self):
        g = self.geometry
        totals = [
            0 if s is None else (s + c) // self.ratio
            for s, c in zip(self.starts, self.counts, strict=True)
        ]
        columns = max(self.columns, -(-max(totals) // g.per_page), 1)
        entries = Pages(g, g.per_page, g.page_bytes, len(self.starts) + 2, columns, self.generator)
        for row, total in zip(self.rows, totals, strict=True):
            where = torch.arange(total)
            entries.write(row, where // g.per_page, where % g.per_page, self.random(total, g.dim))
        return entries

    def _picks(self, positions, picks, hostile):
        """Ascending distinct picks, then -1; or hostile ones: repeated, not visible, far out of range."""
        rows = []
        for position in positions.tolist():
            visible = (position + 1) // 4
            if hostile:
                row = torch.randint(-2, visible + 4, (picks,), generator=self.generator)
                row[:: max(1, picks // 3)] = 2**31 - 1
                row[1 :: max(1, picks // 2)] = -(2**31)
            else:
                row = torch.full((picks,), -1)
                chosen = torch.randperm(visible, generator=self.generator)[:picks]
                row[: len(chosen)] = chosen.sort().values
            rows.append(row)
        return torch.stack(rows).int()
