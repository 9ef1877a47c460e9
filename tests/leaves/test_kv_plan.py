"""Pools solved from a budget and a mix: what is accepted fits, what is refused does not."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4_trt.errors import CapacityError, ConfigError
from dsv4_trt.kv_layout import Bucket, CacheClass, solve
from dsv4_trt.kv_mix import DEFAULT_MIX, Load, mean_pages, parse_mix
from dsv4_trt.kv_plan import (
    MAX_PAGES,
    KvPlan,
    check_plan,
    concurrency,
    largest_in_memory,
    largest_sequence,
    plan_for_sequences,
    plan_pools,
)
from dsv4_trt.kv_report import (
    V32_BYTES_PER_TOKEN,
    bytes_per_token_by_class,
    most_bytes_by_class,
    payload_by_class,
    payload_bytes,
    payload_share,
    window_bytes_by_class,
)
from dsv4_trt.presets import FLASH, PRO, TINY, cut_layers

LARGE, MIDDLE, SMALL = Bucket.LARGE, Bucket.MIDDLE, Bucket.SMALL
MILLION = 1 << 20
SERVING = solve(FLASH, "fp8", "fp8")
LAYOUTS = [
    solve(spec, kv, indexer, mtp=mtp)
    for spec, (kv, indexer), mtp in itertools.product(
        (FLASH, PRO, TINY, cut_layers(FLASH, 1), cut_layers(PRO, 2)),
        (("fp8", "fp4"), ("fp8", "fp8"), ("bf16", "bf16")),
        (False, True),
    )
]
layouts = st.sampled_from(LAYOUTS)
lengths = st.integers(1, 300_000)
mixes = st.lists(
    st.builds(Load, st.integers(1, 200), st.integers(1, 200_000)), min_size=1, max_size=3
)
budgets = st.one_of(st.integers(0, 40 << 20), st.integers(0, 100 << 30))
tail_counts = st.integers(0, 3)


def page_bytes(layout, pages):
    return sum(count * layout.page_bytes[bucket] for bucket, count in pages.items())


def fits(plan, length, tails):
    peak = plan.layout.peak_pages_per_sequence(length, tails)
    return all(peak[bucket] <= plan.num_pages[bucket] for bucket in Bucket)


def clipped(mix, max_seq_len):
    return [Load(load.count, min(load.length, max_seq_len)) for load in mix]


@given(layouts, budgets, mixes, lengths, tail_counts)
def test_a_plan_fills_the_budget_and_holds_the_longest(layout, budget, mix, longest, tails):
    mix = clipped(mix, longest)
    try:
        plan = plan_pools(layout, budget, mix, max_seq_len=longest, tails=tails)
    except CapacityError:
        assert page_bytes(layout, layout.peak_pages_per_sequence(longest, tails)) > budget
        return
    assert plan.total_bytes <= budget
    assert budget - plan.total_bytes < sum(layout.page_bytes.values())
    assert fits(plan, longest, tails)
    check_plan(plan, longest, tails)
    assert largest_sequence(plan, tails) >= longest


@given(layouts, budgets, mixes, st.integers(1, 64 * MILLION), tail_counts)
def test_a_refusal_names_the_largest_length_that_fits(layout, budget, mix, longest, tails):
    largest = largest_in_memory(layout, budget, tails=tails)
    if longest <= largest:
        plan_pools(layout, budget, clipped(mix, longest), max_seq_len=longest, tails=tails)
        return
    with pytest.raises(CapacityError) as refusal:
        plan_pools(layout, budget, clipped(mix, longest), max_seq_len=longest, tails=tails)
    if not largest:
        assert "not even one token fits" in str(refusal.value)
        one = layout.peak_pages_per_sequence(1, tails)
        assert page_bytes(layout, one) > budget
        return
    named = re.search(r"the largest max_seq_len that fits is (\d+)", str(refusal.value))
    assert int(named[1]) == largest
    plan_pools(layout, budget, clipped(mix, largest), max_seq_len=largest, tails=tails)
    above = largest + 256
    with pytest.raises(CapacityError):
        plan_pools(layout, budget, clipped(mix, above), max_seq_len=above, tails=tails)


@given(layouts, budgets, st.integers(0, 1 << 30), mixes, lengths)
def test_more_memory_gives_no_pool_less(layout, extra, more, mix, longest):
    budget = page_bytes(layout, layout.peak_pages_per_sequence(longest)) + extra
    mix = clipped(mix, longest)
    small = plan_pools(layout, budget, mix, max_seq_len=longest)
    large = plan_pools(layout, budget + more, mix, max_seq_len=longest)
    assert all(small.num_pages[b] <= large.num_pages[b] for b in Bucket)


@given(layouts, st.dictionaries(st.sampled_from(Bucket), st.integers(0, 5000)), budgets, lengths)
def test_overrides_are_kept_or_refused(layout, overrides, budget, longest):
    largest = largest_in_memory(layout, budget, overrides=overrides)
    arguments = {"mix": [Load(1, longest)], "max_seq_len": longest, "overrides": overrides}
    if longest > largest:
        with pytest.raises(CapacityError):
            plan_pools(layout, budget, **arguments)
        return
    plan = plan_pools(layout, budget, **arguments)
    assert {b: plan.num_pages[b] for b in overrides} == overrides
    assert plan.total_bytes <= budget
    assert fits(plan, longest, 1)


@given(layouts, st.lists(st.integers(0, 60_000), min_size=3, max_size=3), st.integers(0, 2000))
def test_concurrency_fits_and_one_more_does_not(layout, pages, groups):
    plan = KvPlan(layout=layout, num_pages=dict(zip(Bucket, pages, strict=True)))
    length = 128 * groups + 128 + 123  # where every window is at its most, whatever its pages
    found = concurrency(plan, length)
    need = layout.pages_per_sequence(length)
    assert all(found.sequences * need[b] <= plan.num_pages[b] for b in Bucket)
    assert (found.sequences + 1) * need[found.limited_by] > plan.num_pages[found.limited_by]


@given(layouts, st.integers(1, 3000))
def test_concurrency_counts_windows_at_their_most(layout, length):
    plan = KvPlan(layout=layout, num_pages=dict.fromkeys(Bucket, 10**7))
    sequences = concurrency(plan, length).sequences
    for shorter in range(max(1, length - 130), length + 1):
        need = layout.pages_per_sequence(shorter)
        assert all(sequences * need[b] <= plan.num_pages[b] for b in Bucket)


@given(layouts, st.lists(st.integers(0, 20_000), min_size=3, max_size=3), tail_counts)
def test_the_largest_sequence_is_the_largest(layout, pages, tails):
    plan = KvPlan(layout=layout, num_pages=dict(zip(Bucket, pages, strict=True)))
    largest = largest_sequence(plan, tails)
    assert largest == 0 or fits(plan, largest, tails)
    assert largest == 2**31 - 1 or not fits(plan, largest + 1, tails)
    if largest:
        check_plan(plan, largest, tails)
    if largest < 2**31 - 1:
        with pytest.raises(CapacityError):
            check_plan(plan, largest + 1, tails)


def test_pools_are_in_the_proportion_of_the_mix():
    mix = parse_mix("64x8K,8x128K")
    plan = plan_pools(SERVING, 50 << 30, mix, max_seq_len=MILLION)
    shares = mean_pages(SERVING, mix)
    scales = [plan.num_pages[b] / shares[b] for b in Bucket]
    assert max(scales) / min(scales) < 1.0001


def test_mean_pages_of_one_sequence_by_hand():
    # swa: 3 pages, 2 at one place of 64. State of 4: 2 pages, 1 at one place of 4. State of 128 in
    # pages of 8: 0 to 16 pages, 8 + 3/8 in the mean. 32 logical blocks, and half of another.
    swa, csa_state, hca_state = 43 * (3 - 1 / 64), 21 * 1.75, 20 * 8.375
    pages = mean_pages(SERVING, [Load(1, 8192)])
    assert pages[LARGE] == swa + csa_state + hca_state + 21 * 32.5
    assert pages[MIDDLE] == 21 * 1.75 + 21 * 32.5
    assert pages[SMALL] == 20 * 32.5
    assert mean_pages(SERVING, [Load(3, 8192)]) == {b: 3 * n for b, n in pages.items()}


@given(layouts, st.integers(5, 20))
def test_the_mean_is_that_of_lengths_around(layout, block):
    length = block * 256
    places = [layout.pages_per_sequence(length + 1 + i) for i in range(-128, 128)]
    found = mean_pages(layout, [Load(1, length)])
    for bucket in Bucket:
        assert sum(pages[bucket] for pages in places) == 256 * found[bucket]


def test_the_minimum_of_one_pool_leaves_the_rest_to_the_others():
    mix = [Load(100, 300)]  # short: hardly any small pages
    longest = 256 * 1024
    budget = page_bytes(SERVING, SERVING.peak_pages_per_sequence(longest)) + (1 << 30)
    plan = plan_pools(SERVING, budget, mix, max_seq_len=longest)
    least = SERVING.peak_pages_per_sequence(longest)
    assert plan.num_pages[SMALL] == least[SMALL]
    assert plan.num_pages[MIDDLE] == least[MIDDLE]
    assert plan.num_pages[LARGE] == least[LARGE] + (1 << 30) // 37440


def test_an_override_that_is_too_small_is_named():
    need = SERVING.peak_pages_per_sequence(MILLION)[MIDDLE]
    with pytest.raises(CapacityError) as refusal:
        plan_pools(
            SERVING, 1 << 40, DEFAULT_MIX, max_seq_len=MILLION, overrides={MIDDLE: need - 21}
        )
    assert f"the middle pool is set to {need - 21:,} pages" in str(refusal.value)
    assert f"can need {need:,}; " in str(refusal.value)
    assert str(refusal.value).endswith(f"the largest max_seq_len that fits is {MILLION - 256}")


def test_check_plan_names_the_pool():
    plan = plan_for_sequences(SERVING, [8192])
    with pytest.raises(CapacityError, match=r"8,193 can need 660 small pages, .* has 640; .*8192$"):
        check_plan(
            KvPlan(layout=SERVING, num_pages=dict(plan.num_pages) | {LARGE: 10**6, MIDDLE: 10**6}),
            8193,
        )


def test_a_pool_of_more_pages_than_int32_is_refused():
    with pytest.raises(CapacityError, match=r"middle pool would have .* int32"):
        plan_pools(
            SERVING, 1 << 45, [Load(1, MILLION)], max_seq_len=MILLION, overrides={LARGE: 10**7}
        )
    pages = {LARGE: 10**4, MIDDLE: 10**4, SMALL: MAX_PAGES}
    check_plan(KvPlan(layout=SERVING, num_pages=pages), 1000)
    with pytest.raises(CapacityError, match="int32"):
        check_plan(KvPlan(layout=SERVING, num_pages=pages | {SMALL: MAX_PAGES + 1}), 1000)


def test_a_model_without_compressed_layers_needs_one_pool():
    layout = solve(cut_layers(FLASH, 2), "fp8", "fp8")
    plan = plan_pools(layout, 1 << 30, DEFAULT_MIX, max_seq_len=MILLION)
    assert plan.num_pages == {LARGE: (1 << 30) // 37440, MIDDLE: 0, SMALL: 0}
    assert concurrency(plan, 8192).limited_by is LARGE
    assert largest_sequence(plan) == 2**31 - 1


def test_parse_mix():
    assert parse_mix("64x8K,8x128K") == DEFAULT_MIX == (Load(64, 8192), Load(8, 131072))
    assert parse_mix("1x1M, 3x17") == (Load(1, 1048576), Load(3, 17))


@pytest.mark.parametrize(
    "text",
    [
        *("", "8K", "x8K", "64x", "0x8K", "64x0", "-1x8K", "64x8k", "64x8K,", "1.5x8K", "1x8G"),
        *("\uff11x8K", "1x999999999M", "9" * 5000 + "x1"),
    ],
)
def test_a_mix_of_nonsense_is_refused(text):
    with pytest.raises(ConfigError, match="expected COUNTxTOKENS"):
        parse_mix(text)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"max_seq_len": 0}, "max_seq_len is 0"),
        ({"max_seq_len": 2**31}, "max_seq_len is 2147483648"),
        ({"tails": -1}, "tails is -1"),
        ({"mix": []}, "the mix is empty"),
        ({"mix": [Load(1, 8193)]}, "1 sequences of 8193 tokens"),
        ({"mix": [Load(0, 1)]}, "0 sequences of 1 tokens"),
        ({"overrides": {LARGE: -1}}, "override large=-1"),
        ({"overrides": {"huge": 1}}, "override huge=1"),
    ],
)
def test_meaningless_requests_are_refused(change, named):
    request = {"mix": [Load(1, 100)], "max_seq_len": 8192} | change
    with pytest.raises(ConfigError, match=named):
        plan_pools(SERVING, 1 << 30, **request)


def test_a_million_tokens_of_pro_in_bf16():
    held = payload_by_class(solve(PRO, "bf16", "bf16"), MILLION)
    csa = (128 + MILLION // 4) * 1024 + MILLION // 4 * 256  # SWA and CSA entries, indexer keys
    hca = (128 + MILLION // 128) * 1024
    state = held.pop(CacheClass.CSA_STATE) + held.pop(CacheClass.INDEXER_STATE)
    assert held.pop(CacheClass.HCA_STATE) == 0
    assert sum(held.values()) == 30 * csa + 31 * hca
    assert round(sum(held.values()) / 2**30, 2) == 9.62
    assert state == 30 * 4 * (8192 + 2048)
    assert round(V32_BYTES_PER_TOKEN * MILLION / 2**30, 1) == 83.9


def test_payload_by_hand():
    # 300 tokens: 75 groups of 4, 2 of 128; state: the unfinished group, in CSA one group more
    assert payload_by_class(SERVING, 300) == {
        CacheClass.SWA: 43 * 128 * 584,
        CacheClass.CSA: 21 * 75 * 584,
        CacheClass.CSA_STATE: 21 * 4 * 8192,
        CacheClass.INDEXER: 21 * 75 * 132,
        CacheClass.INDEXER_STATE: 21 * 4 * 2048,
        CacheClass.HCA: 20 * 2 * 584,
        CacheClass.HCA_STATE: 20 * 44 * 4096,
    }
    assert set(payload_by_class(SERVING, 0).values()) == {0}


@given(layouts, st.integers(1, 5000))
def test_entries_lie_in_the_pages_held(layout, length):
    rest = page_bytes(layout, layout.pages_per_sequence(length))
    assert 0 < payload_bytes(layout, length) <= rest
    assert payload_share(layout, length) == payload_bytes(layout, length) / rest
    most = most_bytes_by_class(layout, length)
    assert payload_bytes(layout, length) <= rest <= sum(most.values())


@given(layouts, st.integers(8, 4096))
def test_a_long_sequence_costs_its_windows_and_its_tokens(layout, blocks):
    windows, per_token = window_bytes_by_class(layout), bytes_per_token_by_class(layout)
    most = most_bytes_by_class(layout, blocks * 256)
    assert most == {c: windows[c] + per_token[c] * blocks * 256 for c in most}
    assert sum(per_token.values()) == layout.bytes_per_token()


def test_windows_of_a_sequence_in_steady_decode():
    # per layer 3 window pages, 2 of each CSA state, 16 of HCA state
    assert window_bytes_by_class(SERVING) == {
        CacheClass.SWA: 43 * 3 * 37440,
        CacheClass.CSA: 0,
        CacheClass.CSA_STATE: 21 * 2 * 37440,
        CacheClass.INDEXER: 0,
        CacheClass.INDEXER_STATE: 21 * 2 * 8640,
        CacheClass.HCA: 0,
        CacheClass.HCA_STATE: 20 * 16 * 37440,
    }
