"""Names of logical blocks: equal exactly where everything up to the block's end is equal."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4_trt.kv_layout import LOGICAL_BLOCK
from dsv4_trt.runtime.kv.block_hashes import extend_hashes

SALTS = st.text(max_size=5)


def hashes(tokens, salt=""):
    found = []
    extend_hashes(found, np.array(tokens, np.int32), salt)
    return found


def ids(count, seed=0):
    return np.random.default_rng(seed).integers(0, 129280, count, dtype=np.int32)


@given(length=st.integers(0, 1300), salt=SALTS)
def test_only_complete_blocks_have_a_name(length, salt):
    found = hashes(ids(length), salt)
    assert len(found) == length // LOGICAL_BLOCK
    assert len(set(found)) == len(found)
    assert all(type(name) is bytes and len(name) == 16 for name in found)


@given(cuts=st.lists(st.integers(1, 600), min_size=1, max_size=6), salt=SALTS)
def test_bit_by_bit_is_at_once(cuts, salt):
    tokens, found, end = ids(sum(cuts)), [], 0
    for size in cuts:
        end += size
        extend_hashes(found, tokens[:end], salt)
    assert found == hashes(tokens, salt)


@given(changed=st.integers(0, 1279), other=st.integers(1, 129279))
def test_a_token_changes_its_block_and_all_later_ones(changed, other):
    tokens = ids(1280)
    edited = tokens.copy()
    edited[changed] = (edited[changed] + other) % 129280
    before, after = hashes(tokens), hashes(edited)
    same = changed // LOGICAL_BLOCK
    assert before[:same] == after[:same]
    assert not set(before[same:]) & set(after[same:])


@given(one=SALTS, two=SALTS)
def test_salts_share_nothing(one, two):
    first, second = hashes(ids(768), one), hashes(ids(768), two)
    if one == two:
        assert first == second
    else:
        assert not set(first) & set(second)


def test_equal_blocks_at_other_places_have_other_names():
    assert len(set(hashes(np.zeros(2048)))) == 8
    tokens = ids(512)
    swapped = np.concatenate([tokens[256:], tokens[:256]])
    assert not set(hashes(tokens)) & set(hashes(swapped))


def test_tokens_do_not_run_into_one_another():
    """Neighbours that trade bytes, or change places, are other tokens."""
    base = [1, 256, 2, 65536] * 64
    for other in ([256, 1, 2, 65536] * 64, [1, 256, 65536, 2] * 64, [257, 0, 2, 65536] * 64):
        assert hashes(base) != hashes(other)


@pytest.mark.parametrize("salt", ["", "a", "\ud800", "\x00", "ü" * 100])
def test_any_text_is_a_salt(salt):
    assert len(hashes(ids(300), salt)) == 1
    assert hashes(ids(300), salt) == hashes(ids(300), salt)


def test_a_view_with_gaps_is_its_tokens():
    tokens = ids(1024)
    assert hashes(tokens[::2]) == hashes(tokens[::2].copy())
