"""Which bytes of the slabs a step changes: the entries that its slots name, and no other."""

import numpy as np
import pytest
import torch

from dsv4_trt.kv_layout import CacheClass
from dsv4_trt.plugins.reference import pages
from dsv4_trt.plugins.reference.entries import indexer_entry, kv_entry, plain_entry
from dsv4_trt.runtime.stepper import Chunk
from tests.engine.paged_sequences import PagedSequences
from tests.workshop import random_ids


def entry_format(spec, kv):
    """How the entries of a class become bytes."""
    if kv.group:
        return plain_entry("fp32", kv.entry_bytes // 4)
    if kv.cache_class is CacheClass.INDEXER:
        return indexer_entry(kv.format, spec.index_head_dim)
    return kv_entry(kv.format, spec.head_dim, spec.qk_rope_head_dim)


def named_fields(engine, batch):
    """What the slots of a step name, as `(bucket, page, first byte, end)`: the fields of entries."""
    found = []
    for cache_class, slots in batch.slot_mappings.items():
        kv = engine.layout[cache_class]
        at = np.flatnonzero((slots >= 0) & (batch.seq_ids >= 0))
        rows = batch.table_rows[batch.seq_ids[at]]
        first = 0 if kv.window is None else kv.window_pages
        columns, entries = np.divmod(slots[at], kv.entries_per_page)
        page = batch.block_tables[cache_class][:, rows, first + columns]
        begin = 0
        for width in entry_format(engine.spec, kv).field_bytes:
            for layer_pages in page.tolist():
                for p, e in zip(layer_pages, entries.tolist(), strict=True):
                    found.append((kv.bucket, p, begin + e * width, begin + (e + 1) * width))
            begin += kv.entries_per_page * width
    assert len(set(found)) == len(found), "two rows write to one place"
    return found


class Watch:
    """Stands before an engine: each step may change just the bytes that its slots name."""

    def __init__(self, engine):
        self.engine = engine
        self.num_fields = 0

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def step(self, batch, **options):
        return self.watch(batch, lambda: self.engine.step(batch, **options))

    def step_mtp(self, batch, streams):
        return self.watch(batch, lambda: self.engine.step_mtp(batch, streams))

    def watch(self, batch, run):
        fields, slabs = named_fields(self.engine, batch), self.engine._slabs[0]
        generator = torch.Generator().manual_seed(self.num_fields)
        for bucket, page, begin, end in fields:  # so that what is written differs from what was
            slabs[bucket][page, begin:end].random_(-128, 128, generator=generator)
        before = {bucket: slab.clone() for bucket, slab in slabs.items()}
        output = run()
        changed = {bucket: slabs[bucket] != before[bucket] for bucket in slabs}
        for bucket, page, begin, end in fields:
            assert changed[bucket][page, begin:end].any(), f"{bucket}: a slot without an entry"
            changed[bucket][page, begin:end] = False
        for bucket, rest in changed.items():
            assert not rest.any(), f"{bucket}: a byte that no slot names has changed"
        self.num_fields += len(fields)
        return output


@pytest.mark.parametrize(("kv", "indexer"), [("fp8", "fp4"), ("bf16", "bf16")])
def test_nothing_changes_but_the_entries_that_slots_name(workshop, tiny_a, kv, indexer):
    """A pool of canaries: prompts in chunks, decodes beside a chunk, boundaries with tails, MTP."""
    build = ("--kv_cache_dtype", kv, "--indexer_cache_dtype", indexer)
    engine = workshop.engine(tiny_a, precision="serving", build=build, lens=(640, 640))
    for slab in engine._slabs[0].values():
        slab.random_(-128, 128, generator=torch.Generator().manual_seed(1))
    watch = Watch(engine)
    some = PagedSequences(watch, retention="every")
    one, two = some.open(), some.open()
    some.feed([(one, random_ids(300, seed=1))])
    some.feed([(one, [5]), (two, random_ids(70, seed=2))])
    some.feed([(one, [6]), (two, [7])])
    some.feed([(two, random_ids(500, seed=3))])
    assert watch.num_fields > 3000
    assert some.stepper.prefix.num_tails == 3
    row = some.stepper.mtp_kv.open()
    streams = torch.randn(200, engine.spec.hc_mult, engine.spec.hidden_size).bfloat16()
    some.stepper.step_mtp([Chunk(row=row, token_ids=random_ids(200))], streams)


@pytest.mark.parametrize("page_bytes", [37440, 8640, 1728])
def test_the_last_page_of_a_pool_above_4_gib(tmp_path, page_bytes):
    """A sparse file as slab: what is stored tells that one page was touched, and which."""
    entry, per_page = {
        37440: (kv_entry("fp8", 512, 64), 64),
        8640: (indexer_entry("fp8", 128), 64),
        1728: (kv_entry("fp8", 512, 64), 2),
    }[page_bytes]
    num_pages = 2**32 // page_bytes + 3
    file = tmp_path / "slab"
    with file.open("wb") as slab:
        slab.truncate(num_pages * page_bytes)
    pool = torch.from_file(
        str(file), shared=True, size=num_pages * page_bytes, dtype=torch.int8
    ).view(num_pages, page_bytes)
    last = num_pages - 1
    table = torch.tensor([[last - 1, last]], dtype=torch.int32)
    slots = torch.tensor([per_page, -1, 2 * per_page - 1], dtype=torch.int32)  # column 1
    _, place = pages.slot_places(table, torch.zeros(3, dtype=torch.int32), slots, per_page)
    values = torch.randn(2, 512 if page_bytes != 8640 else 128)
    pages.write(pool, place, entry, per_page, values)
    found = pages.read(pool, place, entry, per_page)
    assert torch.equal(found, entry.decode(*entry.encode(values)))
    by_token = pages.entry_places(table[0], torch.tensor([per_page, 2 * per_page - 1]), per_page)
    assert torch.equal(pages.read(pool, by_token, entry, per_page), found)
    wrapped = (last * page_bytes - 2**32) // page_bytes  # where 32-bit offsets would have gone
    assert not pool[wrapped : wrapped + 3].any()
    assert not pool[last - 1].any()
    assert not pool[:3].any()
    assert file.stat().st_size > 2**32
    assert file.stat().st_blocks * 512 < 2**20
