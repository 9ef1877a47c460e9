"""What a row keeps from step to step equals what is worked out anew: draws, seen ids, counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_trt.runtime.sampling.row_state import RowState
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.sampling.token_counts import TokenCounts

seeds = st.integers(0, 2**64 - 1)
# few ids, so that they come again, and ids of a whole vocabulary
tokens = st.lists(st.integers(0, 12) | st.integers(0, 129279), max_size=60)


def row(*, seed=0, index=0, prompt=(), output=()):
    return RowState(
        name="r",
        params=SamplingParams(seed=seed),
        eos_token_id=1,
        prompt_ids=prompt,
        output_ids=list(output),
        index=index,
    )


def reference(seed, index, position):
    """First word of the Philox block behind counter `position`, by a generator of its own."""
    bits = np.random.Philox(key=seed + (index << 64), counter=position).random_raw()
    return (int(bits) >> 11) / 2**53


@given(seeds, st.integers(0, 127), st.integers(0, 300), st.lists(st.integers(1, 3), max_size=40))
@settings(max_examples=150, deadline=None)
def test_draws_are_those_of_a_fresh_philox_at_each_position(seed, index, start, steps):
    state = row(seed=seed, index=index, output=[0] * start)
    assert state.uniform() == reference(seed, index, start)
    for step in steps:
        state.output_ids.extend([5] * step)
        position = len(state.output_ids)
        assert state.uniform() == reference(seed, index, position)


def philox_word(counter, key):
    """Word 0 of Philox4x64-10 as Salmon et al. (2011) define it, in whole numbers."""
    ones = 2**64 - 1
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        left, right = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
        a, b, c, d = (right >> 64) ^ b ^ k0, right & ones, (left >> 64) ^ d ^ k1, left & ones
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & ones, (k1 + 0xBB67AE8584CAA73B) & ones
    return a


def test_draws_are_those_of_the_published_philox():
    assert philox_word((0, 0, 0, 0), (0, 0)) == 0x16554D9ECA36314C  # Random123's known answer
    for seed, index, position in ((0, 0, 0), (2**64 - 1, 127, 1000), (12345, 3, 7)):
        word = philox_word((position + 1, 0, 0, 0), (seed, index))
        drawn = row(seed=seed, index=index, output=[0] * position).uniform()
        assert drawn == (word >> 11) / 2**53


def test_a_draw_asked_for_twice_is_the_same():
    state = row(seed=11, output=[1, 2])
    assert state.uniform() == state.uniform() == reference(11, 0, 2)


def test_draws_are_uniform_over_steps_and_over_seeds():
    for values in (
        [row(seed=7, output=[0] * step).uniform() for step in range(4000)],
        [row(seed=seed).uniform() for seed in range(4000)],
    ):
        assert 0 <= min(values) <= max(values) < 1
        counts, _ = np.histogram(values, bins=20, range=(0, 1))
        chi2 = float(((counts - 200) ** 2 / 200).sum())
        assert chi2 < 43.8  # 0.1% point of 19 degrees of freedom; seeds are fixed
        assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.05


@given(
    tokens, tokens, st.lists(tokens, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6)
)
@settings(max_examples=200, deadline=None)
def test_seen_ids_and_counts_follow_the_output(prompt, output, added, asked):
    state = row(prompt=prompt, output=output)
    for new, ask in zip([[], *added], [True, *asked], strict=False):
        state.output_ids.extend(new)
        if ask:
            seen, counts = state.seen_ids(), state.output_counts()
            assert sorted(seen.tolist()) == sorted({*prompt, *state.output_ids})
            assert dict(zip(counts.ids.tolist(), counts.counts.tolist(), strict=True)) == Counter(
                state.output_ids
            )


def test_an_id_that_was_seen_costs_no_copy():
    state = row(prompt=range(1000))
    first = state.seen_ids()
    assert len(first) == 1000
    state.output_ids.append(5)
    assert np.shares_memory(state.seen_ids(), first)


def test_copies_for_new_ids_are_few():
    counts, moves, growing = TokenCounts(range(100)), 0, []
    for token_id in range(100, 20_000):
        before = counts.ids
        growing.append(token_id)
        counts.follow(growing)
        moves += not np.shares_memory(before, counts.ids)
    assert counts.ids.tolist() == list(range(20_000))
    assert moves == 8  # 100 to 25,600 by doubling


def test_an_output_that_lost_tokens_is_our_own_fault():
    state = row(output=[1, 2, 3])
    state.output_counts()
    del state.output_ids[-1]
    with pytest.raises(AssertionError, match="3 tokens were counted, 2 are left"):
        state.output_counts()


def test_rows_that_draw_and_rows_that_do_not_are_equal():
    one, other = row(seed=3), row(seed=3)
    one.uniform()
    one.seen_ids()
    assert one == other
    assert repr(one) == repr(other)
