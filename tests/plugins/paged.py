"""Paged sequences for op tests: shuffled page ids, and NaN bytes wherever nothing was written."""

import random
from types import SimpleNamespace

import torch

from dsv4_trt.kv_plan import plan_for_sequences

POISON = -1  # the byte 0xFF: NaN in e4m3, e8m0, bf16 and fp32


def ints(values):
    return torch.tensor(values, dtype=torch.int32)


class PagedSequences:
    """Pools, page ids and step inputs of sequences that grow together; freed pages are poisoned."""

    def __init__(self, layout, num_seqs, max_len, seed=0):
        plan = plan_for_sequences(layout, [max_len] * num_seqs)
        self.layout = layout
        self.pools, self.free = {}, {}
        for bucket, count in plan.num_pages.items():
            shape = (count + 3, layout.page_bytes[bucket])
            self.pools[bucket] = torch.full(shape, POISON, dtype=torch.int8)
            self.free[bucket] = random.Random(seed).sample(range(count + 3), count + 3)
        self.lengths = [0] * num_seqs
        self.rows = random.Random(seed).sample(range(num_seqs + 2), num_seqs)
        self.held = {c: [{} for _ in range(num_seqs)] for c in layout.classes}

    def pool(self, cls):
        return self.pools[self.layout[cls].bucket]

    def step(self, counts, padding=0):
        """Inputs of a step in which sequence s feeds `counts[s]` tokens, with padding rows after."""
        ends = [length + count for length, count in zip(self.lengths, counts, strict=True)]
        positions = [range(s, e) for s, e in zip(self.lengths, ends, strict=True)]
        step = SimpleNamespace(
            positions=ints([p for row in positions for p in row] + [0] * padding),
            seq_ids=ints([s for s, row in enumerate(positions) for _ in row] + [-1] * padding),
            query_start=ints([sum(counts[:s]) for s in range(len(counts) + 1)]),
            seq_lens=ints([e if c else 0 for e, c in zip(ends, counts, strict=True)]),
            table_rows=ints(self.rows),
            decode_carrier=torch.zeros(0, dtype=torch.int8),
            tables={},
            slots={},
            ends=ends,
        )
        for cls, kv in self.layout.classes.items():
            held = [self._extend(kv, s, end) for s, end in enumerate(ends)]
            step.tables[cls] = self._table(kv, held, ends)
            slots = [self._slot(kv, p, ends[s]) for s, row in enumerate(positions) for p in row]
            step.slots[cls] = ints(slots + [-1] * padding)
        return step

    def commit(self, step):
        """Keep what the step wrote and free the pages that left the windows."""
        for cls, kv in self.layout.classes.items():
            for held, end in zip(self.held[cls], step.ends, strict=True):
                first = 0 if kv.window is None else kv.first_page(end)
                for logical in [p for p in held if p < first]:
                    pages = held.pop(logical)
                    self.pools[kv.bucket][pages] = POISON
                    self.free[kv.bucket].extend(pages)
        self.lengths = step.ends

    def named_rows(self, step, cls, layer_row):
        """(page, entry) of every slot that the step names for one layer."""
        kv = self.layout[cls]
        first = 0 if kv.window is None else kv.window_pages
        rows = []
        for slot, seq in zip(step.slots[cls].tolist(), step.seq_ids.tolist(), strict=True):
            if slot >= 0:
                column = first + slot // kv.entries_per_page
                page = int(step.tables[cls][layer_row, self.rows[seq], column])
                rows.append((page, slot % kv.entries_per_page))
        return rows

    def _extend(self, kv, seq, end):
        held = self.held[kv.cache_class][seq]
        for logical in range(*self._logical(kv, end)):
            if logical not in held:
                held[logical] = [self.free[kv.bucket].pop() for _ in kv.layers]
        return held

    def _logical(self, kv, end):
        return 0 if kv.window is None else kv.first_page(end), -(-end // kv.tokens_per_page)

    def _table(self, kv, held, ends):
        if kv.window is None:
            width = max(1, -(-max(ends) // kv.tokens_per_page))
            halves = [ends]
        else:
            width = kv.window_pages
            halves = [self.lengths, ends]
        columns = width * len(halves) + (0 if kv.window is None else 3)  # of pages passed: unused
        table = torch.full((len(kv.layers), len(ends) + 2, columns), -1).int()
        for half, lengths in enumerate(halves):
            for seq, length in enumerate(lengths):
                first, end = self._logical(kv, length)
                for logical in range(first, end):
                    column = half * width + logical % width
                    table[:, self.rows[seq], column] = ints(held[seq][logical])
        return table

    def _slot(self, kv, position, end):
        if kv.window is None:
            return position // kv.ratio if (position + 1) % kv.ratio == 0 else -1
        ring = kv.window_pages * kv.tokens_per_page
        return position % ring if position >= kv.first_token(end) else -1
