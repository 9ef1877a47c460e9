"""rms_norm and qkv_norm. Sums of squares run in another order: what lies on a rounding tie may differ."""

import pytest
import torch

from tests.plugins.cuda.cuda_call import assert_close, kernels, run_both

pytestmark = pytest.mark.gpu

RELATIVE = {
    torch.float32: 1e-6,
    torch.bfloat16: 4e-4,
}  # one in a hundred bf16 values one step off: 2^-8 / 10
EPS = 1e-6


def assert_normed(found, expected):
    assert_close(found, expected, relative=RELATIVE[found.dtype])
    if found.dtype is torch.bfloat16:
        different = (found != expected) & ~found.isnan()
        assert different.sum() <= 1 + different.numel() / 100


def inputs(*shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator).to(dtype)
    return x, torch.randn(shape[-1], generator=generator).bfloat16()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 4096),
        (129, 7168),
        (2, 4, 512),
        (3, 1),
        (5, 7),
        (2, 9001),
        (3, 16384),
        (2, 8200),
        (0, 64),
    ],
)
def test_rms_norm(shape, dtype):
    x, weight = inputs(*shape, dtype=dtype)
    found, expected = run_both("rms_norm", x=x, weight=weight, eps=EPS)
    assert_normed(found["out"], expected["out"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rms_norm_of_hard_rows(dtype):
    """A row's NaN, infinity or size is its own; zeros stay zeros."""
    x, weight = inputs(6, 1536, dtype=dtype)
    x[0] = 0
    x[1, 700] = torch.nan
    x[2, 1535] = torch.inf
    x[3] *= 1e15
    x[4] *= 1e-15
    found, expected = run_both("rms_norm", x=x, weight=weight, eps=EPS)
    assert not found["out"][0].any()
    for row in range(6):
        assert_close(found["out"][row], expected["out"][row], relative=RELATIVE[dtype])


def test_rms_norm_at_odd_addresses():
    x, weight = inputs(3, 512, dtype=torch.bfloat16)
    buffer = torch.empty(3 * 512 + 1, dtype=torch.bfloat16, device="cuda")
    there = buffer[1:].view(3, 512).copy_(x)
    found = kernels()["rms_norm"](x=there, weight=weight.cuda(), eps=EPS)["out"]
    expected = kernels()["rms_norm"](x=there.clone(), weight=weight.cuda(), eps=EPS)["out"]
    assert_normed(found.cpu(), expected.cpu())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("tokens", [1, 3, 200])
@pytest.mark.parametrize(("q", "kv"), [(1024, 512), (1536, 512), (16, 8), (10, 6), (4104, 520)])
def test_qkv_norm(q, kv, tokens, dtype):
    x, weight = inputs(tokens, q + kv, dtype=dtype)
    x[tokens // 2, q:] *= 100  # a part's size is its own
    found, expected = run_both(
        "qkv_norm", x=x, q_weight=weight[:q].clone(), kv_weight=weight[q:].clone(), eps=EPS
    )
    for name in expected:
        assert_normed(found[name], expected[name])
