"""What each rule and filter does to a distribution, one by one, and what a bad row does."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

from dsv4_trt.errors import Dsv4Error, EngineFault, RequestError
from dsv4_trt.runtime.sampling.row_state import RowState, SampledToken
from dsv4_trt.runtime.sampling.sampler import Sampler
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams

EOS = 1


def row(*, prompt=(), output=(), bitmask=None, name="r", **params):
    return RowState(
        name=name,
        params=SamplingParams(**params),
        eos_token_id=EOS,
        prompt_ids=list(prompt),
        output_ids=list(output),
        bitmask=bitmask,
    )


def bitmask(vocab, allowed):
    words = np.zeros(-(-vocab // 32), np.uint32)
    for token in allowed:
        words[token // 32] |= np.uint32(1 << (token % 32))
    return words.view(np.int32)


def one(logits, state):
    """The token of a single row; its error is raised."""
    logits = torch.tensor([logits], dtype=torch.float32)
    found = Sampler(logits.shape[1]).sample(logits, [state])[0]
    if isinstance(found, Dsv4Error):
        raise found
    return found


def greedy(logits, **fields):
    return one(logits, row(temperature=0, **fields)).token_id


def draws(logits, count=4000, **params):
    """Share of each token over `count` seeds."""
    matrix = torch.tensor([logits], dtype=torch.float32).repeat(count, 1)
    states = [row(seed=seed, **params) for seed in range(count)]
    found = Sampler(len(logits)).sample(matrix, states)
    return np.bincount([t.token_id for t in found], minlength=len(logits)) / count


def log(*probabilities):
    return [math.log(p) if p else -100.0 for p in probabilities]


def test_greedy_takes_the_lowest_id_of_equals():
    assert greedy([0.0, 3.0, 3.0, 1.0]) == 1


def test_no_rows():
    assert Sampler(5).sample(torch.empty(0, 5), []) == []


def test_bias_is_added_before_anything_else():
    assert greedy([0.0, 3.0, 2.0], logit_bias={2: 1.5}) == 2
    assert greedy([0.0, 3.0, 2.0], logit_bias={1: -100.0}) == 2


def test_the_mask_bans_tokens_across_word_borders():
    logits = [float(i) for i in range(70)]
    assert greedy(logits, bitmask=bitmask(70, [3, 31, 32, 63])) == 63
    assert greedy(logits, bitmask=bitmask(70, [3, 31])) == 31
    assert greedy(logits, bitmask=bitmask(70, range(70))) == 69


def test_a_bias_does_not_unban():
    logits = [0.0] * 40
    assert greedy(logits, bitmask=bitmask(40, [5]), logit_bias={7: 100.0}) == 5


def test_repetition_divides_positive_and_multiplies_negative_logits_once():
    assert greedy([0.0, 3.0, 2.0], prompt=[1, 1], repetition_penalty=2.0) == 2
    assert greedy([0.0, 3.0, 2.0], output=[1, 1, 1], repetition_penalty=1.4) == 1
    assert greedy([-1.0, -1.5], prompt=[0], repetition_penalty=2.0) == 1


def test_presence_counts_once_and_frequency_every_time_and_neither_the_prompt():
    logits = [0.0, 3.0, 2.0]
    assert greedy(logits, output=[1], presence_penalty=1.1) == 2
    assert greedy(logits, output=[1, 1, 1], presence_penalty=0.9) == 1
    assert greedy(logits, output=[1, 1, 1], frequency_penalty=0.4) == 2
    assert greedy(logits, output=[1, 1], frequency_penalty=0.4) == 1
    assert greedy(logits, prompt=[1] * 9, frequency_penalty=2.0, presence_penalty=2.0) == 1


def test_min_tokens_bars_the_tokens_that_end_a_request():
    logits = [0.0, 9.0, 1.0, 8.0]  # EOS best, then 3
    held = {"min_tokens": 2, "stop_token_ids": (3,)}
    assert greedy(logits, output=[2], **held) == 2
    assert greedy(logits, output=[2, 2], **held) == EOS
    assert greedy(logits, output=[2], min_tokens=2, ignore_eos=True) == EOS


def test_plain_draws_follow_the_distribution():
    assert draws(log(0.5, 0.3, 0.15, 0.05)) == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.025)


def test_forks_of_a_seeded_request_draw_their_own_tokens():
    logits = torch.zeros(2, 1000)
    forks = [row(seed=5), row(seed=5)]
    forks[1].index = 1
    drawn = [[t.token_id for t in Sampler(1000).sample(logits, forks)] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1]


def test_temperature_sharpens_and_flattens():
    # p^2 and p^(1/2), renormalised
    assert draws(log(0.8, 0.2), temperature=0.5) == pytest.approx([0.941, 0.059], abs=0.015)
    assert draws(log(0.8, 0.2), temperature=2.0) == pytest.approx([2 / 3, 1 / 3], abs=0.025)


def test_a_tiny_temperature_is_greedy_and_not_nan():
    logits = [1000.0, -1000.0, 999.99]
    assert draws(logits, count=50, temperature=1e-45).tolist() == [1, 0, 0]


def test_top_k_keeps_exactly_k_lowest_ids_of_equals_first():
    found = draws([1.0, 1.0, 1.0, 1.0, 0.0], top_k=2)
    assert found == pytest.approx([0.5, 0.5, 0, 0, 0], abs=0.025)


def test_top_p_keeps_the_smallest_set_that_reaches_p():
    share = (0.5, 0.3, 0.15, 0.05)
    assert draws(log(*share), top_p=0.79) == pytest.approx([0.625, 0.375, 0, 0], abs=0.025)
    kept = draws(log(*share), top_p=0.81)
    assert kept == pytest.approx([0.526, 0.316, 0.158, 0], abs=0.025)


def test_top_p_keeps_at_least_one():
    assert draws(log(0.4, 0.3, 0.3), count=50, top_p=1e-12).tolist() == [1, 0, 0]


def test_top_k_above_the_vocabulary_keeps_all():
    assert (draws([1.0, 1.0, 1.0], top_k=2**70) > 0).all()


def test_top_p_sees_what_top_k_left():
    # of 0.4 0.3 0.2 0.1 top_k 2 leaves 4/7 and 3/7; 0.55 is reached by the first alone
    assert draws(log(0.4, 0.3, 0.2, 0.1), count=50, top_k=2, top_p=0.55).tolist() == [1, 0, 0, 0]


def test_min_p_is_relative_to_the_best_token():
    found = draws(log(0.6, 0.25, 0.1, 0.05), min_p=0.3)
    assert found == pytest.approx([0.706, 0.294, 0, 0], abs=0.025)


def test_logprobs_are_of_the_raw_distribution():
    logits = [0.1, 2.0, 1.0, 2.0]
    raw = torch.tensor(logits).log_softmax(-1)
    found = one(logits, row(temperature=0, logprobs=3, logit_bias={0: 50.0}, output=[1]))
    assert found.token_id == 0
    assert found.logprob == pytest.approx(float(raw[0]), abs=1e-6)
    assert [token for token, _ in found.top] == [1, 3, 2]
    assert [lp for _, lp in found.top] == pytest.approx(raw[[1, 3, 2]].tolist(), abs=1e-6)


def test_top_logprobs_only_where_asked():
    assert one([0.0, 1.0], row(temperature=0)).top == ()
    assert one([0.0, 1.0], row(temperature=0, logprobs=0)).top == ()
    assert len(one([0.0, 1.0], row(temperature=0, logprobs=2)).top) == 2
    equal = one([1.0] * 50, row(temperature=0, logprobs=4)).top
    assert [token for token, _ in equal] == [0, 1, 2, 3]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("where", [0, 3])
def test_a_row_that_is_not_a_number_gets_an_error(bad, where):
    logits = torch.zeros(2, 4)
    logits[1, where] = bad
    rows = [row(temperature=0), row(name="second", temperature=0)]
    good, error = Sampler(4).sample(logits, rows)
    assert good.token_id == 0
    assert isinstance(error, EngineFault)
    assert "row 1 (second)" in str(error)


BAD_ROWS = {
    "nan": (EngineFault, [math.nan] * 40, {}),
    "one nan": (EngineFault, [0.0] * 39 + [math.nan], {"top_k": 3, "seed": 1}),
    "inf": (EngineFault, [math.inf] + [0.0] * 39, {"temperature": 0, "logprobs": 3}),
    "nothing": (EngineFault, [-math.inf] * 40, {"top_p": 0.5}),
    "banned": (RequestError, [0.0] * 40, {"bitmask": bitmask(40, [])}),
    "ended": (RequestError, [0.0] * 40, {"bitmask": bitmask(40, [EOS]), "min_tokens": 1}),
    "mask size": (RequestError, [0.0] * 40, {"bitmask": bitmask(80, [3]), "top_k": 2}),
    "mask dtype": (RequestError, [0.0] * 40, {"bitmask": np.ones(2, np.int64)}),
}
GOOD_ROWS = [
    {"temperature": 0},
    {"seed": 3},
    {"seed": 4, "top_k": 9, "top_p": 0.7, "logprobs": 4},
    {"seed": 5, "min_p": 0.2, "logit_bias": {7: 3.0}, "bitmask": bitmask(40, range(3, 30))},
    {"seed": 6, "repetition_penalty": 1.8, "prompt": [3, 4], "output": [4, 5], "min_tokens": 9},
    {"seed": 7, "presence_penalty": 1.5, "frequency_penalty": 0.5, "output": [8, 8, 9]},
    {"temperature": 0, "repetition_penalty": 0.5, "prompt": [11], "logprobs": 0},
    {"seed": 9, "top_p": 0.4, "temperature": 1.5},
]


@pytest.mark.parametrize("order", range(6))
def test_bad_rows_leave_the_others_their_tokens(order):
    good = torch.randn(len(GOOD_ROWS), 40, generator=torch.Generator().manual_seed(order))
    alone = Sampler(40).sample(good, [row(**fields) for fields in GOOD_ROWS])
    assert all(isinstance(found, SampledToken) for found in alone)
    batch = [
        (logits, fields, token)
        for logits, fields, token in zip(good, GOOD_ROWS, alone, strict=True)
    ]
    batch += [(torch.tensor(logits), fields, kind) for kind, logits, fields in BAD_ROWS.values()]
    random.Random(order).shuffle(batch)
    rows = [row(name=f"req-{i}", **fields) for i, (_, fields, _) in enumerate(batch)]
    found = Sampler(40).sample(torch.stack([logits for logits, _, _ in batch]), rows)
    for i, (here, (_, _, expected)) in enumerate(zip(found, batch, strict=True)):
        if isinstance(expected, SampledToken):
            assert here == expected
        else:
            assert type(here) is expected
            assert f"req-{i}" in str(here)


def test_a_batch_of_nothing_but_bad_rows():
    kinds = [kind for kind, _, _ in BAD_ROWS.values()]
    logits = torch.tensor([logits for _, logits, _ in BAD_ROWS.values()])
    rows = [row(**fields) for _, _, fields in BAD_ROWS.values()]
    assert [type(found) for found in Sampler(40).sample(logits, rows)] == kinds


def test_a_nan_raises_even_where_the_mask_bans_it():
    with pytest.raises(EngineFault, match="row 0"):
        one([math.nan, 1.0, 2.0], row(bitmask=bitmask(3, [1, 2])))


def test_all_minus_infinity_is_the_engines_fault():
    with pytest.raises(EngineFault, match="row 0"):
        one([-math.inf] * 3, row())


def test_no_token_left_is_the_requests_fault():
    with pytest.raises(RequestError, match=r"row 0 \(req-7\).*bitmask"):
        one([0.0] * 40, row(bitmask=bitmask(40, []), name="req-7"))
    with pytest.raises(RequestError, match="min_tokens"):
        one([0.0] * 40, row(bitmask=bitmask(40, [EOS]), min_tokens=1))


def test_bits_beyond_the_vocabulary_are_ignored():
    words = np.array([0, -1], np.int32)  # ids 32..63 of a vocabulary of 40
    assert greedy([9.0] * 32 + [1.0] * 8, bitmask=words) == 32


@pytest.mark.parametrize(
    "words", [np.zeros(1, np.int32), np.zeros(3, np.int32), np.zeros(2, np.int64)]
)
def test_a_bitmask_of_the_wrong_size_or_type_raises(words):
    with pytest.raises(RequestError, match=r"expected int32 \[2\]"):
        one([0.0] * 40, row(bitmask=words))


@pytest.mark.parametrize(
    "logits",
    [torch.zeros(1, 5), torch.zeros(2, 4), torch.zeros(4), torch.zeros(1, 4, dtype=torch.bfloat16)],
)
def test_logits_of_another_shape_or_type_raise(logits):
    with pytest.raises(EngineFault, match="expected torch"):
        Sampler(4).sample(logits, [row()])


def test_the_callers_logits_are_left_alone():
    logits = torch.randn(2, 40)
    before = logits.clone()
    Sampler(40).sample(
        logits, [row(logit_bias={1: 5.0}, bitmask=bitmask(40, [1, 2])), row(top_k=3)]
    )
    assert torch.equal(logits, before)
