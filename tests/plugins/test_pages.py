"""Page bytes as the layout documents them, and writes that touch nothing else."""

import numpy as np
import pytest
import torch

from dsv4_trt.errors import PluginError
from dsv4_trt.kv_layout import CacheClass, indexer_entry_bytes, kv_entry_bytes
from dsv4_trt.plugins.reference import codecs, pages
from dsv4_trt.plugins.reference.entries import indexer_entry, kv_entry, plain_entry
from tests.plugins.op_call import call_all
from tests.plugins.paged import POISON, PagedSequences
from tests.plugins.small_model import FORMATS, INV_FREQ, SPEC, SWA, changed_rows, layout


def pool_of(num_pages, page_bytes):
    return torch.full((num_pages, page_bytes), POISON, dtype=torch.int8)


def place(*pairs):
    rows = torch.tensor(pairs)
    return pages.Place(rows[:, 0], rows[:, 1])


@pytest.mark.parametrize("format", ["fp8", "bf16", "fp32"])
def test_kv_entry_bytes_are_the_layouts(format):
    assert sum(kv_entry(format, 512, 64).field_bytes) == kv_entry_bytes(format, 512, 64)


@pytest.mark.parametrize("format", ["fp4", "fp8", "bf16", "fp32"])
def test_indexer_entry_bytes_are_the_layouts(format):
    assert sum(indexer_entry(format, 128).field_bytes) == indexer_entry_bytes(format, 128)


def test_fp8_kv_page_byte_by_byte():
    pool, x = pool_of(3, 37440), torch.randn(2, 512)
    pages.write(pool, place((2, 63), (0, 5)), kv_entry("fp8", 512, 64), 64, x)
    page = pool[2].numpy().view(np.uint8)
    row, scales = page[63 * 576 : 64 * 576], page[64 * 576 + 63 * 8 :][:8]
    codes, expected = codecs.act8(x[:, :448], 64)
    assert row[:448].tolist() == codes[0].view(torch.uint8).tolist()
    assert row[448:].tolist() == x[0, 448:].bfloat16().view(torch.uint8).tolist()
    assert scales.tolist() == [*expected[0].view(torch.uint8).tolist(), 0]


def test_indexer_pages_byte_by_byte():
    x = torch.randn(1, 128)
    fp4, fp8 = pool_of(1, 4608), pool_of(1, 8640)
    pages.write(fp4, place((0, 3)), indexer_entry("fp4", 128), 64, x)
    pages.write(fp8, place((0, 3)), indexer_entry("fp8", 128), 64, x)
    packed, scale = codecs.act4(x)
    assert torch.equal(fp4[0, 3 * 64 :][:64], packed[0])
    assert torch.equal(fp4[0, 64 * 64 + 3 * 4 :][:4], scale[0])
    codes, scale = codecs.act8(x, 128)
    assert torch.equal(fp8[0, 3 * 128 :][:128], codes[0].view(torch.int8))
    stored = fp8[0, 64 * 128 + 3 * 4 :][:4].clone().view(torch.float32)
    assert torch.equal(stored, codecs.e8m0_decode(scale)[0])


@pytest.mark.parametrize(
    ("entry", "per_page", "page_bytes"),
    [
        (kv_entry("fp8", 512, 64), 64, 37440),
        (kv_entry("fp8", 192, 64), 3, 3 * 258 + 1),  # odd strides
        (kv_entry("fp8", 192, 64), 3, 3 * 258 + 2),
        (kv_entry("bf16", 512, 64), 2, 2048),
        (indexer_entry("fp4", 128), 64, 4608),
        (indexer_entry("fp8", 128), 64, 8640),
        (plain_entry("fp32", 2048), 4, 37440),
    ],
)
def test_what_is_written_reads_back(entry, per_page, page_bytes):
    pool = pool_of(5, page_bytes)
    width = (
        128
        if entry.field_bytes[0] in (64, 128)
        else entry.decode(*entry.encode(_row(entry))).shape[1]
    )
    x = torch.randn(4, width, generator=torch.Generator().manual_seed(0))
    at = place((4, 0), (0, per_page - 1), (4, 1), (2, 1))
    pages.write(pool, at, entry, per_page, x)
    back = pages.read(pool, at, entry, per_page)
    assert torch.equal(back, entry.decode(*entry.encode(x)))
    torch.testing.assert_close(back, x, atol=0.5, rtol=0.15)
    untouched = pages.read(pool, place((1, 0), (0, 0)), entry, per_page)
    assert untouched.isnan().all()
    assert (pool[[1, 3]] == POISON).all()


def _row(entry):
    return torch.zeros(1, {576: 512, 256: 192, 1024: 512, 8192: 2048}[entry.field_bytes[0]])


def test_offsets_pass_32_bits():
    pool = torch.empty(2**31 // 37440 + 2, 37440, dtype=torch.int8)  # pages are mapped when touched
    entry, at = kv_entry("fp8", 512, 64), place((len(pool) - 1, 63))
    x = torch.randn(1, 512).bfloat16().float()
    pages.write(pool, at, entry, 64, x)
    assert torch.equal(pages.read(pool, at, entry, 64)[:, 448:], x[:, 448:])


def test_missing_page_is_an_error():
    pool, entry = pool_of(2, 2048), kv_entry("bf16", 512, 64)
    with pytest.raises(PluginError, match="holds page -1"):
        pages.read(pool, place((0, 0), (-1, 0)), entry, 2)
    with pytest.raises(PluginError, match="holds page -1"):
        pages.write(pool, place((-1, 1)), entry, 2, torch.zeros(1, 512))
    assert (pool == POISON).all()


def insert(paged, step, q, kv, format, dtype):
    swa = paged.layout[SWA]
    return call_all(
        "qkv_rope_insert",
        q=q.to(dtype),
        kv=kv.to(dtype),
        inv_freq=INV_FREQ,
        positions=step.positions,
        seq_ids=step.seq_ids,
        table_rows=step.table_rows,
        slot_mapping=step.slots[SWA],
        block_table=step.tables[SWA],
        pool=paged.pool(SWA),
        num_heads=2,
        D=512,
        eps=1e-6,
        format=format,
        layer_row=1,
        entries_per_page=swa.entries_per_page,
        window_pages=swa.window_pages,
    )


@pytest.mark.parametrize("format", ["fp8", "bf16", "fp32"])
@pytest.mark.parametrize("counts", [[1, 1, 0], [3, 200, 130], [0, 0, 64]])
def test_insert_writes_the_rows_of_the_window_and_nothing_else(format, counts):
    paged = PagedSequences(layout(format), 3, 700)
    for lead in ([64, 130, 1], counts):
        step = paged.step(lead, padding=2)
        before, tokens = paged.pool(SWA).clone(), len(step.positions)
        q, kv = torch.randn(tokens, 1024), torch.randn(tokens, 512)
        dtype = torch.float32 if format == "fp32" else torch.bfloat16
        out = insert(paged, step, q, kv, format, dtype)
        rows, elsewhere = changed_rows(before, out["pool"], paged.layout[SWA])
        named = paged.named_rows(step, SWA, 1)
        assert rows == set(named)
        assert not elsewhere
        assert len(named) == sum(min(count, SPEC.sliding_window) for count in lead)
        written = out["kv"][(step.slots[SWA] >= 0).nonzero().squeeze(1)]
        entry = kv_entry(format, 512, 64)
        stored = pages.read(out["pool"], place(*named), entry, paged.layout[SWA].entries_per_page)
        assert torch.equal(stored, written.float())
        paged.commit(step)


def test_a_step_of_padding_writes_nothing():
    paged = PagedSequences(layout("fp8"), 2, 300)
    step = paged.step([0, 0], padding=4)
    insert(paged, step, torch.randn(4, 1024), torch.randn(4, 512), "fp8", torch.bfloat16)
    assert (paged.pool(SWA) == POISON).all()


def test_slot_without_sequence_writes_nothing():
    paged = PagedSequences(layout("fp32"), 1, 300)
    step = paged.step([4])
    step.seq_ids[2] = -1
    insert(paged, step, torch.randn(4, 1024), torch.randn(4, 512), "fp32", torch.float32)
    before = torch.full_like(paged.pool(SWA), POISON)
    rows, _ = changed_rows(before, paged.pool(SWA), paged.layout[SWA])
    assert len(rows) == 3


@pytest.mark.parametrize(("kv", "indexer"), FORMATS)
def test_layout_pages_hold_all_entries(kv, indexer):
    for cls, kv_class in layout(kv, indexer).classes.items():
        assert kv_class.raw_bytes <= kv_class.page_bytes, cls
    assert CacheClass.HCA_STATE in layout(kv, indexer).classes
