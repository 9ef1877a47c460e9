"""Pages of running sequences: nothing leaks, nothing is shared, windows stay windows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_trt.errors import CapacityError
from dsv4_trt.kv_layout import Bucket, solve
from dsv4_trt.kv_plan import KvPlan, plan_for_sequences
from dsv4_trt.presets import FLASH, cut_layers
from dsv4_trt.runtime.kv.cache import Advance, KvCache

SPEC = cut_layers(FLASH, 4)
FORMATS = [("fp8", "fp8"), ("fp8", "fp4"), ("bf16", "bf16"), ("fp32", "fp32")]


def held_by_bucket(cache, pages):
    found = dict.fromkeys(Bucket, 0)
    for cache_class, held in pages.held.items():
        found[cache.layout[cache_class].bucket] += held.pages.size
    return found


def check_ownership(cache, sequences):
    """Free + held = total, and no page twice."""
    for bucket, pool in cache.pools.items():
        owned = [
            held.pages.ravel()
            for seq in sequences
            for cache_class, held in seq.held.items()
            if cache.layout[cache_class].bucket is bucket
        ]
        ids = np.concatenate(owned) if owned else np.empty(0, np.int32)
        assert ids.size + pool.num_free == pool.num_pages
        assert np.unique(ids).size == ids.size


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_steps_hold_exactly_what_the_layout_says(data):
    kv_format, indexer = data.draw(st.sampled_from(FORMATS))
    layout = solve(SPEC, kv_format, indexer)
    cache = KvCache(plan_for_sequences(layout, [3000] * 3))
    sequences = [cache.open() for _ in range(3)]
    for _ in range(data.draw(st.integers(1, 12))):
        chosen = data.draw(st.sets(st.integers(0, 2), min_size=1))
        lengths = st.sampled_from([1, 1, 1, 3, 8, 64, 127, 128, 129, 256, 700])
        advances = []
        for i in sorted(chosen):
            grown = sequences[i].num_tokens + data.draw(lengths)
            if grown > 3000:
                cache.close(sequences[i])
                sequences[i] = cache.open()
                grown = 5
            advances.append(Advance(sequences[i], grown))
        step = cache.prepare(advances)
        if data.draw(st.booleans()):
            cache.commit(step)
        else:
            cache.rollback(step)
        check_ownership(cache, sequences)
        for seq in sequences:
            assert held_by_bucket(cache, seq) == layout.pages_per_sequence(seq.num_tokens)
    for seq in sequences:
        cache.close(seq)
    assert all(pool.num_free == pool.num_pages for pool in cache.pools.values())


@pytest.mark.parametrize(("kv_format", "indexer"), FORMATS)
def test_every_token_of_a_window_is_where_the_tables_say(kv_format, indexer):
    """Follow each written row through later steps: the before-half must still name its page."""
    layout = solve(SPEC, kv_format, indexer)
    cache = KvCache(plan_for_sequences(layout, [2000]))
    seq = cache.open()
    where = {}  # (class, position) -> (page of each layer, row)
    for size in (5, 1, 1, 130, 1, 64, 3, 300, 1, 1, 256, 7):
        start, end = seq.num_tokens, seq.num_tokens + size
        step = cache.prepare([Advance(seq, end)])
        for kv in layout.classes.values():
            table = step.block_tables[kv.cache_class][:, 0]
            slots = step.slot_mappings[kv.cache_class]
            epp = kv.entries_per_page
            half = kv.window_pages if kv.window else 0
            for position in range(kv.first_token(start), start) if kv.window else ():
                page = table[:, position // kv.tokens_per_page - kv.first_page(start)]
                row = position % kv.tokens_per_page
                assert where[kv.cache_class, position][1] == row
                np.testing.assert_array_equal(where[kv.cache_class, position][0], page)
            for offset, slot in enumerate(slots):
                if slot >= 0:
                    page = table[:, half + slot // epp]
                    assert (page >= 0).all()
                    where[kv.cache_class, start + offset] = (page.copy(), slot % epp)
            if kv.window is None:
                completed = [p for p in range(start, end) if (p + 1) % kv.ratio == 0]
                assert [start + i for i, s in enumerate(slots) if s >= 0] == completed
            else:
                kept = range(max(start, kv.first_token(end)), end)
                assert [start + i for i, s in enumerate(slots) if s >= 0] == list(kept)
        cache.commit(step)


def test_steady_decode_needs_a_constant_number_of_window_pages():
    layout = solve(SPEC, "fp8", "fp8")
    most = {kv.cache_class: 0 for kv in layout.classes.values() if kv.window}
    for length in range(1000, 1600):
        for cache_class in most:
            most[cache_class] = max(most[cache_class], layout[cache_class].pages_for(length))
    assert most == {"swa": 3, "csa_state": 2, "indexer_state": 2, "hca_state": 16}


def test_a_step_that_does_not_fit_takes_nothing():
    layout = solve(SPEC, "fp8", "fp8")
    pages = layout.pages_per_sequence(256)
    cache = KvCache(KvPlan(layout=layout, num_pages=pages))
    seq = cache.open()
    cache.commit(cache.prepare([Advance(seq, 256)]))
    free = {b: p.num_free for b, p in cache.pools.items()}
    with pytest.raises(CapacityError, match=r"needs \d+ pages of the (large|middle|small) pool"):
        cache.prepare([Advance(cache.open(), 1000)])
    assert {b: p.num_free for b, p in cache.pools.items()} == free


def test_trunk_and_mtp_share_the_pools():
    layout = solve(SPEC, "fp8", "fp8", mtp=True)
    cache = KvCache(plan_for_sequences(layout, [600]))
    sequences = [cache.open(), cache.open(mtp=True)]
    for end in (200, 201, 600):
        for seq in sequences:
            cache.commit(cache.prepare([Advance(seq, end)]))
            check_ownership(cache, sequences)
    held = [held_by_bucket(cache, seq) for seq in sequences]
    assert {b: held[0][b] + held[1][b] for b in Bucket} == layout.pages_per_sequence(600)
