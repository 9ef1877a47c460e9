"""Sizes that steps are padded to on a GPU."""

from itertools import pairwise

import pytest

from dsv4_trt.contract import BuildSpec
from dsv4_trt.step_ladders import step_ladders


@pytest.mark.parametrize(
    ("seqs", "tokens"), [(1, 1), (64, 8192), (100, 300), (700, 8192), (5, 2000)]
)
def test_a_step_of_decodes_has_a_row_for_each_and_no_more(seqs, tokens):
    """Only such a step replays a captured graph."""
    ladders = step_ladders(BuildSpec(max_batch_size=seqs, max_num_tokens=tokens))
    for rung in ladders.seqs.rungs:
        assert ladders.tokens.rung(rung) == rung
    assert (ladders.seqs.maximum, ladders.tokens.maximum) == (seqs, tokens)


def test_prefill_pads_little():
    rungs = step_ladders(BuildSpec()).tokens.rungs
    assert all(high - low <= 256 for low, high in pairwise(rungs))
