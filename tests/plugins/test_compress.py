"""The compressor against a token-by-token oracle, for any way of cutting sequences into steps."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dsv4_trt.kv_layout import CacheClass
from dsv4_trt.plugins.reference import pages
from dsv4_trt.plugins.reference.hadamard import hadamard
from dsv4_trt.plugins.reference.rope import rotate_tail
from tests.plugins.op_call import call_all
from tests.plugins.paged import PagedSequences
from tests.plugins.small_model import (
    CSA,
    FORMATS,
    HCA,
    INDEXER,
    INV_FREQ,
    changed_rows,
    entry_format,
    layout,
    ragged,
    rows_of,
    splits,
)

SHAPES = {CSA: (4, 2, 512), HCA: (128, 1, 512), INDEXER: (4, 2, 128)}  # ratio, overlap, width


class Compressor:
    """One compressor's weights, and its inputs for three sequences."""

    def __init__(self, cls, lengths, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.cls, (self.ratio, self.overlap, self.width) = cls, SHAPES[cls]
        lanes = self.overlap * self.width
        self.ape = torch.randn(self.ratio, lanes, generator=generator)
        self.norm = torch.randn(self.width, generator=generator).bfloat16()
        self.inputs = [torch.randn(n, 2 * lanes, generator=generator) for n in lengths]

    def run(self, paged, step, starts):
        state = CacheClass(f"{self.cls}_state")
        classes = paged.layout
        return call_all(
            "compress",
            kv_gate=rows_of(self.inputs, step, starts),
            ape=self.ape,
            norm_weight=self.norm,
            inv_freq=INV_FREQ,
            **ragged(step),
            state_slot_mapping=step.slots[state],
            state_block_table=step.tables[state],
            state_pool=paged.pool(state),
            slot_mapping=step.slots[self.cls],
            block_table=step.tables[self.cls],
            pool=paged.pool(self.cls),
            ratio=self.ratio,
            overlap=self.overlap,
            width=self.width,
            hadamard=self.cls is INDEXER,
            act_dtype="F32" if classes[self.cls].format == "fp32" else "BF16",
            format=classes[self.cls].format,
            eps=1e-6,
            layer_row=0,
            entries_per_page=classes[self.cls].entries_per_page,
            state_entries_per_page=classes[state].entries_per_page,
            state_window_pages=classes[state].window_pages,
        )

    def entries(self, paged, step, seq):
        """What the pages hold of one sequence."""
        kv = paged.layout[self.cls]
        every = torch.arange(step.ends[seq] // self.ratio)
        entry = entry_format(kv)
        place = pages.entry_places(
            step.tables[self.cls][0, step.table_rows[seq]], every, kv.entries_per_page
        )
        return pages.read(paged.pool(self.cls), place, entry, kv.entries_per_page)

    def oracle(self, seq):
        """Entries of one sequence in double precision, by the definition."""
        values, gates = self.inputs[seq].double().chunk(2, dim=1)
        found = []
        for entry in range(len(values) // self.ratio):
            terms = [self.term(values, gates, t, True) for t in self.group(entry)]
            if self.overlap == 2 and entry > 0:
                terms += [self.term(values, gates, t, False) for t in self.group(entry - 1)]
            v, g = (torch.stack(part) for part in zip(*terms, strict=True))
            pooled = (v * g.softmax(0)).sum(0)
            normed = pooled / (pooled.square().mean() + 1e-6).sqrt() * self.norm.double()
            found.append(rotate_tail(normed[None], torch.tensor([entry * self.ratio]), INV_FREQ))
        entries = torch.cat(found) if found else values[:0, : self.width]
        return hadamard(entries) if self.cls is INDEXER else entries

    def group(self, entry):
        return range(entry * self.ratio, (entry + 1) * self.ratio)

    def term(self, values, gates, token, own):
        lanes = slice((self.overlap - 1) * self.width, None) if own else slice(0, self.width)
        bias = self.ape[token % self.ratio, lanes].double()
        return values[token, lanes], gates[token, lanes] + bias


def run_in_chunks(compressor, formats, cuts):
    """Feed three sequences, each by its own list of chunk sizes; returns all their entries."""
    lengths = [len(x) for x in compressor.inputs]
    paged = PagedSequences(layout(*formats), len(lengths), max(lengths), seed=len(cuts[0]))
    for index in range(max(len(c) for c in cuts)):
        counts = [c[index] if index < len(c) else 0 for c in cuts]
        starts = list(paged.lengths)
        step = paged.step(counts, padding=index % 3)
        compressor.run(paged, step, starts)
        paged.commit(step)
    return [compressor.entries(paged, step, seq) for seq in range(len(lengths))]


@pytest.mark.parametrize("cls", SHAPES)
@pytest.mark.parametrize("size", [1, 5, 64, 1000])
def test_entries_of_any_chunk_size(cls, size):
    lengths = (263, 3, 130) if size > 1 or cls is HCA else (37, 3, 12)
    compressor = Compressor(cls, lengths)
    found = run_in_chunks(compressor, ("fp32", "fp32"), [splits(n, [size]) for n in lengths])
    for seq, entries in enumerate(found):
        assert len(entries) == lengths[seq] // compressor.ratio
        torch.testing.assert_close(entries.double(), compressor.oracle(seq), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("cls", SHAPES)
@settings(deadline=None, max_examples=15)
@given(sizes=st.lists(st.integers(1, 140), min_size=3, max_size=6), length=st.integers(1, 300))
@example(sizes=[127, 1, 1], length=256)
@example(sizes=[1, 2, 3], length=17)
def test_any_split_equals_one_step(cls, sizes, length):
    lengths = (length, max(1, length - 5), 2)
    compressor = Compressor(cls, lengths)
    whole = run_in_chunks(compressor, ("fp8", "fp4"), [[n] for n in lengths])
    cuts = [splits(n, sizes[i:] + sizes[:i]) for i, n in enumerate(lengths)]
    for one, many in zip(whole, run_in_chunks(compressor, ("fp8", "fp4"), cuts), strict=True):
        assert torch.equal(one, many)


@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("cls", SHAPES)
def test_entries_pass_through_their_format(cls, formats):
    compressor = Compressor(cls, (256, 8))
    (entries, _) = run_in_chunks(compressor, formats, [[256], [8]])
    exact = compressor.oracle(0).float()
    limit = {"fp4": 0.15, "fp8": 0.04, "bf16": 0.005, "fp32": 1e-6}[layout(*formats)[cls].format]
    assert limit / 20 < (entries - exact).norm() / exact.norm() < limit


@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("cls", SHAPES)
def test_only_named_rows_change(cls, formats):
    lengths = (300, 140, 9)
    compressor = Compressor(cls, lengths)
    paged = PagedSequences(layout(*formats), 3, 300)
    for counts in ([130, 5, 1], [1, 123, 3], [169, 12, 5]):
        starts, step = list(paged.lengths), paged.step(counts, padding=2)
        touched = {cls, CacheClass(f"{cls}_state")}
        before = {bucket: pool.clone() for bucket, pool in paged.pools.items()}
        compressor.run(paged, step, starts)
        named, changed = {}, {}
        for one in touched:
            bucket = paged.layout[one].bucket
            named.setdefault(bucket, set()).update(
                (one, *row) for row in paged.named_rows(step, one, 0)
            )
            pages_of_class = {int(p) for p in step.tables[one].unique()}
            rows, _ = changed_rows(before[bucket], paged.pools[bucket], paged.layout[one])
            changed.setdefault(bucket, set()).update(
                (one, *row) for row in rows if row[0] in pages_of_class
            )
        assert changed == named
        for bucket, pool in paged.pools.items():
            pages_changed = {int(p) for p in (pool != before[bucket]).any(1).nonzero()}
            assert pages_changed == {row[1] for row in named.get(bucket, set())}
        paged.commit(step)


def test_first_entry_ignores_what_came_before_the_sequence():
    """A new sequence on pages that an older one left behind equals a fresh one."""
    compressor = Compressor(CSA, (7,))
    paged = PagedSequences(layout("fp32"), 1, 300)
    for pool in paged.pools.values():
        pool.copy_(torch.randint(-128, 127, pool.shape, dtype=torch.int8))
    for count in (3, 4):
        starts, step = list(paged.lengths), paged.step([count])
        compressor.run(paged, step, starts)
        paged.commit(step)
    found = compressor.entries(paged, step, 0)
    torch.testing.assert_close(found.double(), compressor.oracle(0), atol=2e-5, rtol=1e-5)
