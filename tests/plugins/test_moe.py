"""Router and experts against a loop over tokens and picks in double precision."""

import pytest
import torch
import torch.nn.functional as F

from dsv4_trt.plugins.reference import codecs
from tests.plugins.op_call import call, call_all

HIDDEN, WIDTH, EXPERTS, TOPK, LIMIT = 256, 128, 5, 3, 0.5


def bank(format, rows, cols, seed):
    """Weights of all experts, their scale bytes and their values in double precision."""
    generator = torch.Generator().manual_seed(seed)
    block = (1, 32) if format == "fp4" else (128, 128)
    shape = (EXPERTS, rows // block[0], cols // block[1])
    low = 118 if format == "fp4" else 121  # so that some of every row passes the limit
    scale = torch.randint(low, low + 5, shape, generator=generator).to(torch.uint8).view(torch.int8)
    if format == "fp4":
        weight = torch.randint(-128, 128, (EXPERTS, rows, cols // 2), generator=generator).char()
        values = codecs.e2m1_decode(weight)
    else:
        weight = torch.randn(EXPERTS, rows, cols, generator=generator).to(torch.float8_e4m3fn)
        values = weight.float()
    factors = codecs.e8m0_decode(scale).repeat_interleave(block[0], 1)
    return weight, scale, values.double() * factors.repeat_interleave(block[1], 2).double()


def experts_call(format, act, x, ids, weights, expert_map):
    w13, w13_scale, up = bank(format, 2 * WIDTH, HIDDEN, 1)
    w2, w2_scale, down = bank(format, HIDDEN, WIDTH, 2)
    out = call(
        "experts",
        x=x,
        expert_ids=torch.tensor(ids, dtype=torch.int32),
        weights=weights,
        expert_map=torch.tensor(expert_map, dtype=torch.int32),
        w13=w13,
        w13_scale=w13_scale,
        w2=w2,
        w2_scale=w2_scale,
        weight_format=format,
        width=WIDTH,
        pack=2 if format == "fp4" else 1,
        scale_rows=1 if format == "fp4" else 128,
        scale_cols=32 if format == "fp4" else 128,
        act=act,
        swiglu_limit=LIMIT,
    )
    return out, up, down


def expert_oracle(x, up, down, weight, act):
    """One token through one expert, rounded where the official code rounds."""

    def seen(value):
        value = value.to(x.dtype)
        return codecs.round_act8(value[None], 128)[0].double() if act != "none" else value.double()

    gate, lift = (up @ seen(x)).to(x.dtype).double().chunk(2)
    passing = (gate > LIMIT, gate < -LIMIT, lift.abs() > LIMIT)
    assert all(bool(where.any()) for where in passing), "the limit would go untested"
    inner = F.silu(gate.clamp(max=LIMIT)) * lift.clamp(-LIMIT, LIMIT) * weight
    return (down @ seen(inner)).to(x.dtype).double()


IDS = [[0, 4, 2], [1, 1, 3], [2, -1, 0], [99, 4, -7]]  # repeated and illegal ids too
MAPS = [[0, 1, 2, 3, 4], [-1, 1, -1, 0, -1], [-1] * 5]


@pytest.mark.parametrize("format", ["fp4", "fp8"])
@pytest.mark.parametrize(("dtype", "act"), [("F32", "none"), ("BF16", "act8_128")])
@pytest.mark.parametrize("expert_map", MAPS)
def test_experts(format, dtype, act, expert_map):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, HIDDEN, generator=generator).to(codecs.FLOATS[dtype])
    weights = torch.rand(4, TOPK, generator=generator)
    out, up, down = experts_call(format, act, x, IDS, weights, expert_map)
    expected = torch.zeros(4, HIDDEN, dtype=torch.float64)
    for row, ids in enumerate(IDS):
        for pick, expert in enumerate(ids):
            local = expert_map[expert] if 0 <= expert < EXPERTS else -1
            if local >= 0:
                weight = weights[row, pick].double()
                expected[row] += expert_oracle(x[row], up[local], down[local], weight, act)
    limit = 1e-6 if act == "none" else 2e-3
    assert (out.double() - expected).norm() <= limit * expected.norm()


@pytest.mark.parametrize("out_dtype", ["F32", "BF16"])
@pytest.mark.parametrize(("dtype", "act"), [("F32", "none"), ("BF16", "act8_128")])
def test_shared_expert_is_clamped(out_dtype, dtype, act):
    x = torch.randn(3, HIDDEN, generator=torch.Generator().manual_seed(1)).to(codecs.FLOATS[dtype])
    w13, w13_scale, up = bank("fp8", 2 * WIDTH, HIDDEN, 3)
    w2, w2_scale, down = bank("fp8", HIDDEN, WIDTH, 4)
    out = call(
        "shared_expert",
        x=x,
        w13=w13[0],
        w13_scale=w13_scale[0],
        w2=w2[0],
        w2_scale=w2_scale[0],
        width=WIDTH,
        act=act,
        swiglu_limit=LIMIT,
        out_dtype=out_dtype,
    )
    expected = torch.stack([expert_oracle(row, up[0], down[0], 1.0, act) for row in x])
    limit = 1e-6 if act == "none" and out_dtype == "F32" else 5e-3
    assert (out.double() - expected).norm() <= limit * expected.norm()


def routed(x, gate, **choice):
    return call_all("router", x=x, gate=gate, **choice, topk=2, route_scale=1.5)


def test_router_picks_by_biased_and_weighs_by_unbiased_scores():
    x = torch.randn(6, 32, generator=torch.Generator().manual_seed(0))
    gate = torch.randn(5, 32, generator=torch.Generator().manual_seed(1)).bfloat16()
    bias = torch.tensor([0.0, 3.0, -3.0, 0.0, 0.0])
    out = routed(x, gate, by="score", bias=bias)
    scores = F.softplus(x.double() @ gate.double().T).sqrt()
    order = (scores + bias).sort(descending=True).indices[:, :2]
    assert torch.equal(out["expert_ids"].long(), order)
    picked = scores.gather(1, order)
    expected = 1.5 * picked / picked.sum(1, keepdim=True)
    torch.testing.assert_close(out["weights"].double(), expected, atol=1e-6, rtol=1e-5)
    assert (out["expert_ids"] == 1).any(1).all()
    assert not (out["expert_ids"] == 2).any()


def test_router_by_token_id():
    table = torch.tensor([[3, 0], [4, 4], [1, 2]], dtype=torch.int32)
    ids = torch.tensor([2, 0, 1, 0], dtype=torch.int32)
    x, gate = torch.randn(4, 32).bfloat16(), torch.randn(5, 32).bfloat16()
    out = routed(x, gate, by="token", tid2eid=table, token_ids=ids)
    assert torch.equal(out["expert_ids"], table[ids.long()])
    torch.testing.assert_close(out["weights"].sum(1), torch.full((4,), 1.5))
    assert out["weights"][2].tolist() == [0.75, 0.75]


def test_router_ties_go_to_the_lower_expert():
    out = routed(torch.zeros(2, 32), torch.ones(5, 32).bfloat16(), by="score", bias=torch.zeros(5))
    assert out["expert_ids"].tolist() == [[0, 1], [0, 1]]
