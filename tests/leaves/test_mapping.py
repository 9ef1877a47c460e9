"""Which spreads over ranks are legal, and that the refusal lists those that are."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from dsv4_trt.errors import ConfigError
from dsv4_trt.mapping import Mapping, legal_mappings
from dsv4_trt.presets import FLASH, PRO, TINY


def sizes(spec):
    return {(m.tp_size, m.moe_ep_size) for m in legal_mappings(spec)}


def test_flash_and_pro_have_the_expected_mappings():
    assert {tp for tp, _ in sizes(FLASH)} == {1, 2, 4, 8}
    assert {tp for tp, _ in sizes(PRO)} == {1, 2, 4, 8, 16}
    assert (16, 1) not in sizes(PRO)
    assert (16, 2) in sizes(PRO)
    assert (1, 1) in sizes(TINY)


def test_pro_over_16_ranks_leaves_192():
    with pytest.raises(ConfigError, match=r"leaves 192, which is not a multiple of 128") as error:
        Mapping(tp_size=16).check(PRO)
    assert "tp 16 ep 2" in str(error.value)


@pytest.mark.parametrize(
    ("mapping", "named"),
    [
        (Mapping(tp_size=16), "o_groups 8"),
        (Mapping(tp_size=3), "num_attention_heads 64"),
        (Mapping(tp_size=64), "o_groups 8"),
        (Mapping(tp_size=0), "at least 1"),
        (Mapping(tp_size=4, moe_ep_size=0), "at least 1"),
        (Mapping(tp_size=8, moe_ep_size=3), "must divide tp_size 8"),
    ],
)
def test_an_illegal_mapping_names_the_size(mapping, named):
    with pytest.raises(ConfigError, match=named):
        mapping.check(FLASH)


@pytest.mark.parametrize("spec", [FLASH, PRO, TINY], ids=["flash", "pro", "tiny"])
def test_the_message_lists_exactly_the_legal_mappings(spec):
    with pytest.raises(ConfigError) as error:
        Mapping(tp_size=7).check(spec)
    listed = str(error.value).split("Legal combinations:")[1]
    found = {(int(tp), int(ep)) for tp, ep in re.findall(r"tp (\d+) ep (\d+)", listed)}
    assert found == sizes(spec)
    for tp, ep in found:
        Mapping(tp_size=tp, moe_ep_size=ep).check(spec)


def test_experts_are_blocks_of_ranks():
    mapping = Mapping(tp_size=8, moe_ep_size=4)
    assert mapping.moe_tp_size == 2
    assert [mapping.ep_rank(r) for r in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [mapping.moe_tp_rank(r) for r in range(8)] == [0, 1] * 4


def test_the_shared_expert_is_sharded_only_into_whole_scale_blocks():
    assert Mapping(tp_size=8).shared_expert_is_sharded(FLASH)
    assert Mapping(tp_size=8).shared_expert_is_sharded(PRO)
    assert not Mapping(tp_size=16, moe_ep_size=2).shared_expert_is_sharded(PRO)
    assert not Mapping(tp_size=2).shared_expert_is_sharded(TINY)


def test_a_vocabulary_that_does_not_divide_is_named():
    with pytest.raises(ConfigError, match="vocab_size 129281"):
        Mapping(tp_size=2).check(replace(FLASH, vocab_size=129281))
