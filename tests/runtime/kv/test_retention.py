"""Which boundaries a chunk leaves behind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4_trt.errors import ConfigError
from dsv4_trt.kv_layout import LOGICAL_BLOCK
from dsv4_trt.runtime.kv.retention import Retention

POLICIES = st.sampled_from(["newest", "every", 1, 2, 3, 7])


@pytest.mark.parametrize(
    ("policy", "start", "end", "expected"),
    [
        ("newest", 0, 255, []),
        ("newest", 0, 256, [256]),
        ("newest", 256, 511, []),
        ("newest", 255, 256, [256]),
        ("newest", 0, 1100, [1024]),
        ("every", 0, 1100, [256, 512, 768, 1024]),
        ("every", 256, 512, [512]),
        ("every", 257, 513, [512]),
        (2, 0, 1100, [512, 1024]),
        (2, 0, 900, [512, 768]),
        (2, 512, 800, [768]),
        (3, 700, 1800, [768, 1536, 1792]),
        (4, 0, 300, [256]),
    ],
)
def test_boundaries_of_a_chunk(policy, start, end, expected):
    assert Retention.parse(policy).boundaries(start, end) == expected


@given(policy=POLICIES, start=st.integers(0, 5000), size=st.integers(1, 5000))
def test_boundaries_are_those_of_the_policy(policy, start, size):
    retention, end = Retention.parse(policy), start + size
    found = retention.boundaries(start, end)
    passed = [b for b in range(LOGICAL_BLOCK, end + 1, LOGICAL_BLOCK) if b > start]
    expected = [b for b in passed if retention.is_lasting(b) or b == passed[-1]]
    assert found == expected


@given(policy=POLICIES, start=st.integers(0, 5000), most=st.integers(1, 5000), data=st.data())
def test_no_chunk_leaves_more_than_the_tables_have_columns_for(policy, start, most, data):
    retention, size = Retention.parse(policy), data.draw(st.integers(1, most))
    found = retention.boundaries(start, start + size)
    assert len(found) <= retention.tails_per_step(most)


@given(policy=POLICIES, cuts=st.lists(st.integers(1, 900), min_size=1, max_size=8))
def test_chunks_leave_the_lasting_boundaries_that_one_step_leaves(policy, cuts):
    retention, total, parts, start = Retention.parse(policy), sum(cuts), [], 0
    for size in cuts:
        parts += retention.boundaries(start, start + size)
        start += size
    whole = retention.boundaries(0, total)
    assert set(whole) <= set(parts)
    assert {b for b in parts if retention.is_lasting(b)} <= set(whole)
    assert parts == sorted(set(parts))


def test_which_boundaries_last():
    def lasting(policy):
        retention = Retention.parse(policy)
        return [b for b in range(256, 1537, 256) if retention.is_lasting(b)]

    assert lasting("newest") == []
    assert lasting("every") == [256, 512, 768, 1024, 1280, 1536]
    assert lasting(3) == [768, 1536]


@pytest.mark.parametrize("bad", ["", "oldest", "2", 0, -1, 1.5, True, None])
def test_a_policy_that_is_none_is_refused(bad):
    with pytest.raises(ConfigError, match=r"tail_retention is .* expected 'newest', 'every'"):
        Retention.parse(bad)
