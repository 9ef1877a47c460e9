"""Page arithmetic against published and hand-computed numbers, and invariants at every format."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4_trt.errors import ConfigError
from dsv4_trt.kv_layout import Bucket, CacheClass, solve
from dsv4_trt.kv_plan import plan_for_sequences
from dsv4_trt.precision import INDEXER_FORMATS, KV_FORMATS
from dsv4_trt.presets import FLASH, PRO, TINY

LARGE, MIDDLE, SMALL = Bucket.LARGE, Bucket.MIDDLE, Bucket.SMALL
WINDOWS = [CacheClass.SWA, CacheClass.CSA_STATE, CacheClass.INDEXER_STATE, CacheClass.HCA_STATE]
EVERY = [
    solve(spec, kv, indexer, mtp=mtp)
    for spec, kv, indexer, mtp in itertools.product(
        (FLASH, PRO, TINY), KV_FORMATS, INDEXER_FORMATS, (False, True)
    )
]


@pytest.mark.parametrize(
    ("kv", "indexer", "pages"),
    [
        ("fp8", "fp8", (37440, 8640, 1728)),
        ("fp8", "fp4", (37440, 4608, 1728)),
        ("bf16", "bf16", (65536, 16384, 2048)),
        ("fp32", "fp32", (131072, 32768, 4096)),
    ],
)
def test_page_bytes(kv, indexer, pages):
    for spec in (FLASH, PRO):
        layout = solve(spec, kv, indexer)
        assert tuple(layout.page_bytes[b] for b in (LARGE, MIDDLE, SMALL)) == pages


def test_entry_bytes():
    layout = solve(FLASH, "fp8", "fp8")
    found = {c: layout[c].entry_bytes for c in layout.classes}
    assert found == {
        "swa": 584,
        "csa": 584,
        "hca": 584,
        "indexer": 132,
        "csa_state": 8192,
        "indexer_state": 2048,
        "hca_state": 4096,
    }
    assert solve(FLASH, "bf16", "fp4")[CacheClass.INDEXER].entry_bytes == 68


def test_entries_of_a_page_and_its_waste():
    layout = solve(FLASH, "fp8", "fp8")
    found = {c: (v.entries_per_page, v.page_bytes - v.raw_bytes) for c, v in layout.classes.items()}
    assert found == {
        "swa": (64, 64),
        "csa": (64, 64),
        "csa_state": (4, 4672),
        "indexer": (64, 192),
        "indexer_state": (4, 448),
        "hca": (2, 560),
        "hca_state": (8, 4672),
    }


def test_bf16_pages_have_no_waste():
    layout = solve(FLASH, "bf16", "bf16")
    assert all(v.page_bytes == v.raw_bytes for v in layout.classes.values())


def test_the_fp4_indexer_halves_the_span_of_its_state():
    wide = solve(FLASH, "fp8", "fp8")[CacheClass.INDEXER_STATE]
    narrow = solve(FLASH, "fp8", "fp4")[CacheClass.INDEXER_STATE]
    assert (wide.tokens_per_page, narrow.tokens_per_page) == (4, 2)
    assert narrow.window_pages == 4


def test_window_pages_of_the_serving_layout():
    layout = solve(FLASH, "fp8", "fp8")
    assert [layout[c].window_pages for c in WINDOWS] == [3, 2, 2, 16]


def test_at_a_logical_block_only_the_overlap_of_the_state_is_kept():
    layout = solve(FLASH, "fp8", "fp8")
    assert [layout[c].first_token(512) for c in WINDOWS] == [384, 508, 508, 512]
    assert [layout[c].pages_for(512) for c in WINDOWS] == [2, 1, 1, 0]


@pytest.mark.parametrize(
    ("spec", "kv", "indexer", "per_token"),
    [
        (FLASH, "fp8", "fp8", 3915),
        (FLASH, "fp8", "fp4", 3584.25),
        (FLASH, "bf16", "bf16", 6880),
        (PRO, "fp8", "fp8", 5609.25),
        (PRO, "fp8", "fp4", 5136.75),
        (PRO, "bf16", "bf16", 9848),
    ],
)
def test_bytes_per_token(spec, kv, indexer, per_token):
    assert solve(spec, kv, indexer).bytes_per_token() == per_token


def test_a_class_has_a_table_row_for_each_of_its_layers():
    layout = solve(FLASH, "fp8", "fp8", mtp=True)
    assert layout[CacheClass.SWA].layers == tuple(range(43))
    assert layout[CacheClass.CSA].layers == tuple(range(2, 43, 2))
    assert layout[CacheClass.HCA].layers == tuple(range(3, 42, 2))
    assert layout[CacheClass.MTP_SWA].layers == (43,)
    assert CacheClass.MTP_SWA not in solve(FLASH, "fp8", "fp8").classes


@pytest.mark.parametrize("layout", EVERY)
def test_every_class_fits_the_page_of_its_bucket(layout):
    for cls in layout.classes.values():
        assert cls.page_bytes == layout.page_bytes[cls.bucket]
        assert cls.entries_per_page >= 1
        assert cls.raw_bytes <= cls.page_bytes
        assert cls.tokens_per_page == cls.entries_per_page * cls.ratio


@given(st.sampled_from(EVERY), st.integers(1, 3000))
def test_a_window_touches_the_pages_counted_for_it(layout, end):
    for cls in layout.classes.values():
        kept = range(cls.first_token(end), end)
        touched = {token // cls.tokens_per_page for token in kept}
        assert cls.pages_for(end) == len(touched)
        if cls.window is not None and touched:
            assert min(touched) == cls.first_page(end)
            assert len(touched) <= cls.window_pages


@pytest.mark.parametrize("layout", EVERY)
def test_window_pages_is_reached_by_some_alignment(layout):
    for cls in layout.classes.values():
        if cls.window is not None:
            most = max(cls.pages_for(end) for end in range(1, 600))
            assert most == cls.window_pages


@given(st.sampled_from(EVERY), st.integers(1, 2000), st.integers(0, 300))
def test_the_peak_covers_a_step_of_any_size(layout, before, added):
    peak = layout.peak_pages_per_sequence(before + added)
    rest = layout.pages_per_sequence(before + added)
    for bucket in Bucket:
        held = sum(
            len(cls.layers) * (cls.pages_for(before) if cls.window is not None else 0)
            for cls in layout.classes.values()
            if cls.bucket is bucket
        )
        assert held + rest[bucket] <= peak[bucket]


def test_a_plan_adds_up_sequences():
    layout = solve(TINY, "fp8", "fp4")
    one = plan_for_sequences(layout, [300])
    both = plan_for_sequences(layout, [300, 300])
    assert both.total_bytes == 2 * one.total_bytes
    assert one.total_bytes == sum(one.num_pages[b] * layout.page_bytes[b] for b in Bucket)


def test_table_width():
    layout = solve(FLASH, "fp8", "fp8")
    assert layout[CacheClass.CSA].table_width(1000) == 4
    assert layout[CacheClass.HCA_STATE].table_width(1000) == 32
    assert layout[CacheClass.SWA].table_width(1000, tails=3) == 12


def test_empty_sequences_hold_no_pages():
    assert set(solve(FLASH, "fp8", "fp8").pages_per_sequence(0).values()) == {0}


@pytest.mark.parametrize(
    ("kv", "indexer", "named"),
    [("fp4", "fp8", "kv_cache_dtype 'fp4'"), ("fp8", "int8", "indexer_cache_dtype 'int8'")],
)
def test_unknown_formats_are_refused(kv, indexer, named):
    with pytest.raises(ConfigError, match=named):
        solve(FLASH, kv, indexer)
