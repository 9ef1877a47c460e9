"""Indexer queries on the GPU against the reference."""

import pytest
import torch

from dsv4_trt.plugins.reference.codecs import e8m0_decode
from tests.plugins.cuda.cuda_call import assert_close, assert_same_bytes, run_both, run_kernel

pytestmark = pytest.mark.gpu
HEAD_DIM = 128
INV_FREQ = 160000.0 ** (-torch.arange(32) / 32)
FORMATS = ["fp4", "fp8", "bf16", "fp32"]
# Sines and sums differ in their last bits. Where that turns over the rounding of one rotated channel to
# bf16 (about one head in a hundred), all 128 sums of its head move by less than a bf16 step: a tenth of
# them round differently as bf16, fewer as e4m3, and next to none as e2m1.
SHARES = {"fp4": 1e-3, "fp8": 4e-3, "bf16": 1e-2}


def on_gpu(op, **arguments):
    return run_both(op, "cuda", **arguments)


def call(q, weights, positions, format, heads, run=on_gpu):
    return run(
        "indexer_q",
        q=q,
        weights=weights,
        inv_freq=INV_FREQ,
        positions=positions,
        num_heads=heads,
        head_dim=HEAD_DIM,
        row=HEAD_DIM // 2 if format == "fp4" else HEAD_DIM,
        format=format,
        scale=HEAD_DIM**-0.5 * heads**-0.5,
    )


def inputs(tokens, heads, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    # channels of very different size, so that scales differ between blocks
    size = torch.randn(heads * HEAD_DIM, generator=generator).exp()
    q = torch.randn(tokens, heads * HEAD_DIM, generator=generator) * size
    weights = torch.randn(tokens, heads, generator=generator)
    positions = torch.randint(0, 1 << 20, (tokens,), generator=generator, dtype=torch.int32)
    positions[:3] = torch.tensor([0, 1, (1 << 20) - 1])[:tokens]
    return q.to(dtype), weights.to(dtype), positions


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("tokens", "heads"), [(0, 64), (1, 64), (129, 64), (5, 8), (3, 6), (2, 128)]
)
def test_queries(format, dtype, tokens, heads):
    found, expected = call(*inputs(tokens, heads, dtype), format, heads)
    exact = dtype is torch.float32 and format == "fp32"
    if exact:
        assert_close(found["q"], expected["q"], relative=1e-6)
    elif format == "fp32":  # bf16 values, as fp32
        assert_same_bytes(found["q"], expected["q"], share=SHARES["bf16"])
    else:
        assert_same_bytes(found["q"], expected["q"], share=SHARES[format])
    if format == "fp4":
        assert_same_bytes(found["q_scale"], expected["q_scale"], share=1e-3)
    assert_same_bytes(found["weights"], expected["weights"], share=1e-3 if format == "fp8" else 0.0)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_integers_at_position_0_are_exact(format, dtype):
    generator = torch.Generator().manual_seed(1)
    q = torch.randint(-64, 65, (7, 64 * HEAD_DIM), generator=generator).to(dtype)
    weights = torch.randint(-9, 10, (7, 64), generator=generator).to(dtype)
    found, expected = call(q, weights, torch.zeros(7, dtype=torch.int32), format, 64)
    for name in expected:
        assert_same_bytes(found[name], expected[name])


@pytest.mark.parametrize("format", FORMATS)
def test_real_width(format):
    arguments = inputs(1500, 64, torch.bfloat16, seed=2)
    found, expected = call(*arguments, format, 64)
    assert_same_bytes(found["q"], expected["q"], share=SHARES.get(format, SHARES["bf16"]))
    assert_same_bytes(found["weights"], expected["weights"], share=1e-3 if format == "fp8" else 0.0)


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_not_finite_or_tiny(format):
    """NaN and infinity make their head NaN; zeros and the least numbers have the least scale."""
    q, weights, positions = inputs(4, 64, torch.bfloat16, seed=3)
    heads = q.view(4, 64, HEAD_DIM)
    heads[0, 5, 3] = torch.nan
    heads[1, 6, 100] = torch.inf
    heads[2, 7] = 0
    heads[3, 8] = 1e-38
    weights[0, 9] = torch.nan
    found, expected = call(q, weights, positions, format, 64)
    assert torch.equal(found["weights"].isnan(), expected["weights"].isnan())
    if format == "fp4":
        scales = [e8m0_decode(out["q_scale"]) for out in (found, expected)]
        assert_close(*scales, relative=0.05)
        assert_same_bytes(found["q_scale"][2:], expected["q_scale"][2:], share=1e-2)
        assert not found["q"][2, 7].view(torch.uint8).bitwise_and(0x77).any()
    else:
        values = [out["q"].float() for out in (found, expected)]
        assert torch.equal(values[0].isnan(), values[1].isnan())
        assert not values[0][2, 7].any()


def test_a_padded_row_may_hold_anything():
    """Rows are independent: NaN in one leaves the others as they are."""
    q, weights, positions = inputs(3, 64, torch.bfloat16, seed=4)
    clean = call(q, weights, positions, "fp4", 64, run=run_kernel)
    q[1], weights[1] = torch.nan, torch.nan
    dirty = call(q, weights, positions, "fp4", 64, run=run_kernel)
    for name in clean:
        assert torch.equal(clean[name][::2], dirty[name][::2])
