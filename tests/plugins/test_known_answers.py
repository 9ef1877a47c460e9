"""Known answers of single ops, most of them from the published model description."""

import math

import pytest
import torch

from dsv4_trt.plugins.reference.attention_inputs import head_norm
from dsv4_trt.plugins.reference.attention_keys import shared_part, window_part
from dsv4_trt.plugins.reference.hadamard import hadamard
from dsv4_trt.plugins.reference.mhc import sinkhorn
from dsv4_trt.plugins.reference.rope import rotate_tail
from tests.plugins.op_call import call, call_all

SINKHORN_LOGITS = torch.tensor([[[1, 0, 0, 0], [0, 0, 2, 0], [0, 0, 0, 0], [0, 3, 0, -1.0]]])
SINKHORN = [
    [0.50364, 0.07183, 0.12511, 0.29942],
    [0.12511, 0.04850, 0.62421, 0.20218],
    [0.27181, 0.10538, 0.18354, 0.43927],
    [0.09944, 0.77429, 0.06715, 0.05912],
]


def mhc_site(fn, hidden):
    return {
        "fn": fn,
        "base": torch.zeros(24),
        "scale": torch.ones(3),
        "norm_weight": torch.ones(hidden, dtype=torch.bfloat16),
        "eps": 1e-6,
        "hc_eps": 1e-6,
        "iters": 20,
    }


def test_hadamard_of_a_unit_vector():
    out = hadamard(torch.eye(128)[1])
    assert out[0] > 0
    assert torch.equal(out.sign(), torch.tensor([1.0, -1.0]).repeat(64))
    torch.testing.assert_close(out.abs(), torch.full((128,), 0.0883883), atol=1e-7, rtol=0)


def test_hadamard_is_its_own_inverse():
    x = torch.randn(3, 5, 128)
    torch.testing.assert_close(hadamard(hadamard(x)), x, atol=1e-5, rtol=0)
    assert hadamard(x.bfloat16()).dtype is torch.bfloat16


def test_sinkhorn_and_direction():
    comb = sinkhorn(SINKHORN_LOGITS, 20, 1e-6)
    torch.testing.assert_close(comb[0], torch.tensor(SINKHORN), atol=1e-5, rtol=0)
    streams = torch.tensor([[[1.0], [2.0], [3.0], [4.0]]])
    out = call("mhc_post", y=torch.zeros(1, 1), streams=streams, post=torch.ones(1, 4), comb=comb)
    expected = torch.tensor([1.96705, 3.58213, 2.19272, 2.25809])
    torch.testing.assert_close(out.flatten(), expected, atol=1e-5, rtol=0)


def test_sinkhorn_takes_exactly_the_rounds_asked_for():
    """Logits far from balance are still moving after 20 rounds."""
    logits = torch.diag(torch.tensor([9.0, -4, 6, -7])).roll(1, 1)
    comb = logits.double().softmax(-1) + 1e-6
    for rows_first in [False] + [True] * 19:
        if rows_first:
            comb = comb / (comb.sum(1, keepdim=True) + 1e-6)
        comb = comb / (comb.sum(0, keepdim=True) + 1e-6)
    found = {rounds: sinkhorn(logits[None], rounds, 1e-6)[0].double() for rounds in (19, 20)}
    torch.testing.assert_close(found[20], comb, atol=1e-6, rtol=0)
    assert (found[19] - comb).abs().max() > 1e-5


def test_mhc_without_mixing():
    streams = torch.randn(2, 4, 8)
    out = call_all("mhc_pre", streams=streams, **mhc_site(torch.zeros(24, 32), 8))
    assert torch.equal(out["post"], torch.ones(2, 4))
    torch.testing.assert_close(out["comb"], torch.full((2, 4, 4), 0.24999976), atol=1e-7, rtol=0)
    mean = 0.500001 * streams.sum(1)
    expected = mean / (mean.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(out["x"], expected)


def test_mhc_post_pre_is_post_then_pre():
    generator = torch.Generator().manual_seed(1)
    streams = torch.randn(5, 4, 16, generator=generator).bfloat16()
    site = mhc_site(torch.randn(24, 64, generator=generator), 16)
    first = call_all("mhc_pre", streams=streams, **site)
    mixed = {"y": first["x"], "streams": streams, "post": first["post"], "comb": first["comb"]}
    both = call_all("mhc_post_pre", **mixed, **site)
    after = call("mhc_post", **mixed)
    assert torch.equal(both["streams"], after)
    for name, value in call_all("mhc_pre", streams=after, **site).items():
        assert torch.equal(both[name], value)


def test_mhc_head_takes_the_wanted_rows():
    streams = torch.randn(6, 4, 8)
    head = {
        "fn": torch.randn(4, 32),
        "base": torch.randn(4),
        "scale": torch.tensor([0.5]),
        "norm_weight": torch.ones(8, dtype=torch.bfloat16),
        "eps": 1e-6,
        "hc_eps": 1e-6,
    }
    rows = torch.tensor([5, 0], dtype=torch.int32)
    some = call("mhc_head", streams=streams, rows=rows, **head)
    every = call("mhc_head", streams=streams, rows=torch.arange(6).int(), **head)
    torch.testing.assert_close(some, every[[5, 0]])
    assert call("mhc_head", streams=streams, rows=rows[:0], **head).shape == (0, 8)


@pytest.mark.parametrize(("v", "score"), [(-4, 0.134722), (0, 0.832555), (2, 1.458399), (25, 5.0)])
def test_router_score(v, score):
    gate = torch.tensor([[1.0], [0.0]], dtype=torch.bfloat16)
    out = call_all(
        "router",
        x=torch.tensor([[float(v)]]),
        gate=gate,
        bias=torch.zeros(2),
        by="score",
        topk=2,
        route_scale=1.0,
    )
    by_expert = dict(zip(out["expert_ids"][0].tolist(), out["weights"][0].tolist(), strict=True))
    assert by_expert[0] == pytest.approx(score / (score + 0.832555), rel=1e-5)


def test_rotation_of_adjacent_pairs():
    x = torch.tensor([[7.0, 7.0, 1.0, 0.0, 0.0, 2.0]])
    out = rotate_tail(x, torch.tensor([3]), torch.tensor([0.5, 0.25]))[0]
    expected = [7, 7, math.cos(1.5), math.sin(1.5), -2 * math.sin(0.75), 2 * math.cos(0.75)]
    torch.testing.assert_close(out, torch.tensor(expected))


def test_inverse_rotation_undoes_the_rotation():
    x, positions = torch.randn(4, 3, 192), torch.tensor([0, 1, 127, 1 << 20])
    inv_freq = 10000.0 ** (-torch.arange(32) / 32)
    back = rotate_tail(rotate_tail(x, positions, inv_freq), positions, inv_freq, inverse=True)
    torch.testing.assert_close(back, x, atol=1e-5, rtol=0)
    assert torch.equal(rotate_tail(x, positions, inv_freq)[..., :128], x[..., :128])


def test_bf16_head_norm_rounds_every_step():
    q = torch.randn(2, 4, 512).bfloat16()
    square = (q.float() * q.float()).bfloat16()
    mean = (square.float().sum(-1, keepdim=True).bfloat16().float() / 512).bfloat16()
    factor = (mean.float() + 1e-6).bfloat16().float().rsqrt().bfloat16()
    expected = (q.float() * factor.float()).bfloat16()
    assert torch.equal(head_norm(q, 1e-6), expected)


def attended(part):
    """What each query of a key part sees, by the number its key holds."""
    keys = part.keys[:, 0].int()
    return [keys[row].tolist() for row in part.seen]


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        (range(6), [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]),
        ([2], [[0, 1, 2]]),
        ([3], [[0, 1, 2, 3]]),
        ([5], [[2, 3, 4, 5]]),
    ],
)
def test_window_of_four(positions, expected):
    at = torch.tensor(list(positions))
    keys = torch.arange(6.0).unsqueeze(1)
    assert attended(window_part(keys, 0, at, 4)) == expected


def test_entries_of_ratio_two_that_five_tokens_see():
    entries = torch.tensor([[5.0], [6.0]])
    visible = (torch.arange(5) + 1) // 2
    assert attended(shared_part(entries, visible)) == [[], [5], [5], [5, 6], [5, 6]]
