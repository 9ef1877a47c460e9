"""The four mhc ops: few tokens (fp32 arithmetic), many (tensor cores), every width and dtype.

Inputs and references are on the GPU too: at real widths that is what makes this fast.
"""

import pytest
import torch

from dsv4_trt.errors import PluginError
from dsv4_trt.plugins.reference import REFERENCES
from tests.plugins.cuda.cuda_call import assert_close, run_kernel

pytestmark = pytest.mark.gpu

BF16, F32 = torch.bfloat16, torch.float32
# fp32 sums in another order; bf16 results: one in a hundred values one step off, 2^-8 / 10
RELATIVE = {F32: 1e-5, BF16: 4e-4}
TOKENS = [1, 2, 3, 8, 13, 24, 25, 33, 128, 129, 600]
ATTRS = {"eps": 1e-6, "hc_eps": 1e-6, "iters": 20}


def run_both(op, **arguments):
    return run_kernel(op, **arguments), REFERENCES[op](**arguments)


def random(*shape, seed):
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cuda")


def site(hidden, mix=24):
    """Weights whose logits are about as large as one."""
    return {
        "fn": random(mix, 4 * hidden, seed=1) / (4 * hidden) ** 0.5,
        "base": random(mix, seed=2),
        "scale": torch.tensor([0.7, 1.3, 2.0][: 3 if mix == 24 else 1], device="cuda"),
        "norm_weight": 1 + random(hidden, seed=3).bfloat16() / 8,
    }


def left(tokens, hidden, dtype):
    """What a site is left with: sizes differ by token and stream."""
    sizes = 2.0 ** (torch.arange(tokens * 4, device="cuda").view(tokens, 4, 1) % 7 - 3)
    return {
        "y": random(tokens, hidden, seed=4).to(dtype),
        "streams": (random(tokens, 4, hidden, seed=5) * sizes).to(dtype),
        "post": random(tokens, 4, seed=6).abs(),
        "comb": random(tokens, 4, 4, seed=7).softmax(-1),
    }


def assert_same(found, expected, *names):
    for name in names:
        assert found[name].shape == expected[name].shape, name
        assert_close(found[name], expected[name], relative=RELATIVE[found[name].dtype])
        if found[name].dtype is F32 and name in ("post", "comb"):
            torch.testing.assert_close(
                found[name], expected[name], rtol=0, atol=1e-5, equal_nan=True
            )
        elif found[name].dtype is BF16:
            different = (found[name] != expected[name]) & ~found[name].isnan()
            assert different.sum() <= 1 + different.numel() / 100, name


def check_post_pre(arguments):
    """Streams against mhc_post; what follows against mhc_pre of the very streams that were written."""
    found = run_kernel("mhc_post_pre", **arguments)
    before = {name: arguments[name] for name in ("y", "streams", "post", "comb")}
    assert_same(found, REFERENCES["mhc_post"](**before), "streams")
    after = {name: value for name, value in arguments.items() if name not in before}
    assert_same(
        found, REFERENCES["mhc_pre"](streams=found["streams"], **after), "x", "post", "comb"
    )


@pytest.mark.parametrize("hidden", [256, 4096, 7168])
@pytest.mark.parametrize("tokens", TOKENS)
def test_bf16(tokens, hidden):
    arguments = left(tokens, hidden, BF16)
    entered = site(hidden) | ATTRS
    found, expected = run_both("mhc_pre", streams=arguments["streams"], **entered)
    assert_same(found, expected, "x", "post", "comb")
    check_post_pre(arguments | entered)


@pytest.mark.parametrize("hidden", [4, 60, 256, 4096, 7168])
@pytest.mark.parametrize("tokens", [1, 3, 40])
def test_fp32(tokens, hidden):
    arguments = left(tokens, hidden, F32)
    entered = site(hidden) | ATTRS
    found, expected = run_both("mhc_pre", streams=arguments["streams"], **entered)
    assert_same(found, expected, "x", "post", "comb")
    check_post_pre(arguments | entered)


@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize(("tokens", "hidden"), [(1, 4096), (129, 7168), (3, 7), (40, 256), (0, 8)])
def test_post(tokens, hidden, dtype):
    found, expected = run_both("mhc_post", **left(tokens, hidden, dtype))
    assert_same(found, expected, "streams")


@pytest.mark.parametrize("hidden", [4096, 7168])
def test_long_chunks(hidden):
    """More tiles than a block puts aside tokens of."""
    arguments = left(8192 + 77, hidden, BF16)
    entered = site(hidden) | ATTRS
    for op in ("mhc_pre", "mhc_post_pre"):
        inputs = arguments if op == "mhc_post_pre" else {"streams": arguments["streams"]}
        found = run_kernel(op, **inputs, **entered)
        if op == "mhc_post_pre":
            assert_same(found, REFERENCES["mhc_post"](**arguments), "streams")
        streams = found.get("streams", arguments["streams"])
        assert_same(found, REFERENCES["mhc_pre"](streams=streams, **entered), "x", "post", "comb")


@pytest.mark.parametrize("hidden", [256, 4096, 7168])
@pytest.mark.parametrize("tokens", [3, 40, 300])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_bad_token_is_alone(bad, tokens, hidden):
    """All other tokens are what they are without it, to the last bit."""
    arguments = left(tokens, hidden, BF16)
    entered = site(hidden) | ATTRS
    at = min(tokens - 1, 9)
    spoilt = arguments | {"streams": arguments["streams"].clone()}
    spoilt["streams"][at, 2, hidden // 2 + 5] = bad
    others = torch.arange(tokens, device="cuda") != at
    for op in ("mhc_pre", "mhc_post_pre"):
        names = ("streams",) if op == "mhc_pre" else tuple(arguments)
        clean = run_kernel(op, **{name: arguments[name] for name in names}, **entered)
        found = run_kernel(op, **{name: spoilt[name] for name in names}, **entered)
        for name, tensor in found.items():
            assert torch.equal(tensor[others], clean[name][others]), (op, name)
        assert found["x"][at].isnan().all()
        assert found["comb"][at].isnan().all()


@pytest.mark.parametrize("tokens", [1, 64])
def test_the_projection_has_all_bits_of_fn(tokens):
    """Streams cancel all but the last bits of fn; what is left decides post."""
    hidden = 4096
    sign = 1 - 2.0 * (torch.arange(4 * hidden, device="cuda") % 2)
    streams = sign.view(1, 4, hidden).repeat(tokens, 1, 1).bfloat16()
    odd, even = 1 + 2.0**-10, 1 + 2.0**-10 + 2.0**-20
    weights = site(hidden)
    weights["fn"] = torch.where(sign > 0, even, odd).repeat(24, 1)
    weights["base"].zero_()
    weights["scale"].fill_(100.0)
    found = run_kernel("mhc_pre", streams=streams, **weights, **ATTRS)["post"].double()
    mix = weights["fn"].double() @ sign.double()
    assert (mix == 2.0**-7).all()
    post = 2 * torch.sigmoid(100 * mix[4:8])
    # the plain reference loses this: its partial sums do not cancel
    torch.testing.assert_close(found, post.expand(tokens, 4), rtol=1e-4, atol=0)


BASES = [
    torch.zeros(16),
    torch.diag(torch.tensor([9.0, -4, 6, -7])).roll(1, 1).flatten(),
    (torch.eye(4) * 200).flatten(),
    torch.arange(16) * 20.0 - 160,
    torch.tensor([88.0, -88.0] * 8),
]


@pytest.mark.parametrize("tokens", [1, 40])
@pytest.mark.parametrize("iters", [1, 2, 20])
@pytest.mark.parametrize("base", BASES)
def test_sinkhorn_of_hard_logits(base, iters, tokens):
    weights = site(4096)
    weights["fn"].zero_()  # the logits are the base
    weights["base"] = torch.cat([torch.tensor([90.0, -90.0, 0.0, 1.0] * 2), base]).cuda()
    streams = left(tokens, 4096, BF16)["streams"]
    found, expected = run_both("mhc_pre", streams=streams, **weights, **(ATTRS | {"iters": iters}))
    assert_same(found, expected, "x", "post", "comb")


@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize("hidden", [256, 4096, 7168])
@pytest.mark.parametrize("count", [1, 5, 11, 40])
def test_head(count, hidden, dtype):
    streams = left(7, hidden, dtype)["streams"]
    rows = (random(count, seed=count).abs() * 100).int() % 7
    arguments = site(hidden, mix=4) | {"eps": 1e-6, "hc_eps": 1e-6}
    found, expected = run_both("mhc_head", streams=streams, rows=rows, **arguments)
    assert_same(found, expected, "x")


def test_head_of_rows_that_are_not_there():
    streams = left(7, 4096, BF16)["streams"]
    arguments = site(4096, mix=4) | {"eps": 1e-6, "hc_eps": 1e-6}
    rows = torch.tensor([2, -1, 7, 2**31 - 1, -(2**31), 6], dtype=torch.int32, device="cuda")
    there = torch.tensor([0, 5], device="cuda")
    found = run_kernel("mhc_head", streams=streams, rows=rows, **arguments)["x"]
    expected = REFERENCES["mhc_head"](streams=streams, rows=rows[there], **arguments)["x"]
    assert_same({"x": found[there]}, {"x": expected}, "x")
    assert not found[1:5].any()


def test_no_tokens():
    arguments, entered = left(0, 256, BF16), site(256) | ATTRS
    assert run_kernel("mhc_pre", streams=arguments["streams"], **entered)["x"].shape == (0, 256)
    assert run_kernel("mhc_post_pre", **arguments, **entered)["comb"].shape == (0, 4, 4)


def test_what_the_kernels_do_not_do_is_refused():
    entered = site(8) | ATTRS
    three = {"streams": random(2, 3, 8, seed=0), "fn": random(24, 24, seed=1)}
    with pytest.raises(PluginError, match="3 residual streams"):
        run_kernel("mhc_pre", **(entered | three))
    with pytest.raises(PluginError, match="multiple of 4"):
        run_kernel("mhc_pre", streams=random(2, 4, 6, seed=0), **(site(6) | ATTRS))
    with pytest.raises(PluginError, match="at least 1"):
        run_kernel("mhc_pre", streams=random(2, 4, 8, seed=0), **(entered | {"iters": 0}))
