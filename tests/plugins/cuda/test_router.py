"""The router against scores in double precision, and against its reference where order decides.

Sums of products in another order may turn near ties over; so a pick is right when its score, in double
precision, is the one that belongs at its place.
"""

import pytest
import torch
import torch.nn.functional as F

from dsv4_trt.plugins.reference.ranking import best
from tests.plugins.cuda.cuda_call import assert_close, kernels, run_both, run_kernel

pytestmark = pytest.mark.gpu
TINY, FLASH, PRO = (8, 256), (256, 4096), (384, 7168)  # experts, hidden size
CLOSE = 1e-5  # scores are about 1; sums of up to 7,168 products in fp32


def inputs(tokens, experts, hidden, dtype=torch.bfloat16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, hidden, generator=generator).to(dtype)
    gate = (torch.randn(experts, hidden, generator=generator) * hidden**-0.5).bfloat16()
    return {"x": x, "gate": gate}, torch.randn(experts, generator=generator)


def double_scores(x, gate):
    return F.softplus(x.double() @ gate.double().T).sqrt()


def check_weights(found, scores, route_scale):
    picked = scores.gather(1, found["expert_ids"].long())
    expected = picked / picked.sum(1, keepdim=True) * route_scale
    torch.testing.assert_close(found["weights"].double(), expected, rtol=CLOSE, atol=CLOSE)


def check_by_score(tokens, experts, hidden, topk, dtype):
    arguments, bias = inputs(tokens, experts, hidden, dtype)
    found = run_kernel("router", **arguments, bias=bias, by="score", topk=topk, route_scale=1.5)
    found = {name: value.cpu() for name, value in found.items()}
    scores = double_scores(**arguments)
    ids = found["expert_ids"].long()
    assert ids.min() >= 0
    assert ids.max() < experts
    assert (ids.sort(1).values.diff(dim=1) > 0).all(), "an expert was picked twice"
    biased = scores + bias.double()
    expected = biased.topk(topk, dim=1).values
    torch.testing.assert_close(biased.gather(1, ids), expected, rtol=0, atol=CLOSE)
    check_weights(found, scores, 1.5)


@pytest.mark.parametrize("tokens", [1, 2, 3, 8, 9, 16, 17, 33, 64, 65, 130, 256, 257, 512, 513])
@pytest.mark.parametrize(("model", "topk"), [(TINY, 2), (FLASH, 6)])
def test_by_score(model, topk, tokens):
    check_by_score(tokens, *model, topk, torch.bfloat16)


@pytest.mark.parametrize(
    ("model", "topk", "tokens", "dtype"),
    [
        (PRO, 6, 1, torch.bfloat16),
        (PRO, 6, 40, torch.bfloat16),
        (PRO, 6, 129, torch.bfloat16),
        ((23, 72), 23, 5, torch.bfloat16),  # a part of a tile, a part of a line, every expert
        ((100, 1000), 32, 7, torch.bfloat16),
        (TINY, 2, 3, torch.float32),
        (FLASH, 6, 1, torch.float32),
        (FLASH, 6, 70, torch.float32),
    ],
)
def test_by_score_of_other_sizes(model, topk, tokens, dtype):
    check_by_score(tokens, *model, topk, dtype)


def test_no_tokens():
    arguments, bias = inputs(0, *TINY)
    found = run_kernel("router", **arguments, bias=bias, by="score", topk=2, route_scale=1.5)
    assert found["expert_ids"].shape == (0, 2)


@pytest.mark.parametrize("tokens", [1, 33, 300, 600])
def test_ties_go_to_the_lower_expert(tokens):
    arguments, bias = inputs(tokens, 16, 4096)
    kinds = torch.randint(0, 16, (256,), generator=torch.Generator().manual_seed(3))
    scores = double_scores(**arguments).float()
    arguments["gate"] = arguments["gate"][kinds].contiguous()
    expected = best((scores + bias)[:, kinds], 32)
    found = run_kernel(
        "router", **arguments, bias=bias[kinds], by="score", topk=32, route_scale=1.0
    )
    gaps = (scores + bias).sort(1).values.diff(dim=1).min(1).values
    clear = gaps > 1e-4
    assert clear.double().mean() > 0.9
    assert torch.equal(found["expert_ids"].cpu().long()[clear], expected[clear])


@pytest.mark.parametrize("tokens", [9, 300, 600])
def test_nan_and_infinities_rank_as_in_the_reference(tokens):
    arguments, bias = inputs(tokens, 16, 256)
    arguments["gate"][5] = torch.nan
    arguments["x"][3] = torch.nan
    arguments["x"][4] *= 1000  # logits beyond softplus's threshold
    arguments["x"][5, 7] = torch.inf
    bias = (bias * 4).round()
    bias[2], bias[7], bias[9], bias[11] = torch.nan, torch.inf, -torch.inf, torch.nan
    for topk in (4, 14, 16):  # numbers suffice; one, then all NaN experts are needed
        found, expected = run_both(
            "router", **arguments, bias=bias, by="score", topk=topk, route_scale=2.5
        )
        assert torch.equal(found["expert_ids"], expected["expert_ids"])
        assert_close(found["weights"], expected["weights"], relative=CLOSE)
        assert not found["weights"][0].isnan().any() or topk > 13


def test_scores_that_are_all_zero_give_nan_as_in_the_reference():
    x = torch.ones(2, 256).bfloat16()
    x[1] *= 0.01
    arguments = {"x": x, "gate": -torch.ones(8, 256).bfloat16(), "bias": torch.zeros(8)}
    found, expected = run_both("router", **arguments, by="score", topk=2, route_scale=1.0)
    assert found["weights"][0].isnan().all()
    assert_close(found["weights"], expected["weights"], relative=CLOSE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("tokens", [1, 8, 300, 600])
def test_by_token(tokens, dtype):
    arguments, _ = inputs(tokens, *FLASH, dtype)
    generator = torch.Generator().manual_seed(2)
    table = torch.randint(0, 256, (1000, 6), generator=generator, dtype=torch.int32)
    ids = torch.randint(0, 1000, (tokens,), generator=generator, dtype=torch.int32)
    ids[:2] = torch.tensor([999, 0], dtype=torch.int32)[:tokens]
    found, expected = run_both(
        "router", **arguments, tid2eid=table, token_ids=ids, by="token", topk=6, route_scale=1.5
    )
    assert torch.equal(found["expert_ids"], expected["expert_ids"])
    check_weights(found, double_scores(**arguments), 1.5)


def test_token_ids_outside_the_vocabulary_pick_nothing():
    arguments, _ = inputs(6, *FLASH)
    table = torch.arange(60, dtype=torch.int32).view(10, 6)
    table[3, 2], table[3, 4] = 256, -5
    ids = torch.tensor([9, -1, 10, 2**31 - 1, -(2**31), 3], dtype=torch.int32)
    found = run_kernel(
        "router", **arguments, tid2eid=table, token_ids=ids, by="token", topk=6, route_scale=1.5
    )
    found = {name: value.cpu() for name, value in found.items()}
    assert torch.equal(found["expert_ids"][0], table[9])
    assert (found["expert_ids"][1:5] == -1).all()
    assert not found["weights"][1:5].any()
    assert found["expert_ids"][5].tolist() == [18, 19, -1, 21, -1, 23]
    torch.testing.assert_close(found["weights"].sum(1)[[0, 5]], torch.tensor([1.5, 1.5]))


@pytest.mark.parametrize("tokens", [4, 300, 600])
def test_captured(tokens):
    arguments, bias = inputs(tokens, *FLASH)
    arguments = {name: value.cuda() for name, value in (arguments | {"bias": bias}).items()}
    other = inputs(tokens, *FLASH, seed=1)[0]["x"].cuda()

    def run():
        return kernels()["router"](**arguments, by="score", topk=6, route_scale=1.5)

    expected = [run(), None]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    first = arguments["x"].clone()
    arguments["x"].copy_(other)
    expected[1] = run()
    for x, wanted in ((first, expected[0]), (other, expected[1]), (first, expected[0])):
        arguments["x"].copy_(x)
        for value in captured.values():
            value.view(torch.int8).fill_(-1)
        graph.replay()
        for name, value in captured.items():
            assert torch.equal(value, wanted[name])
