"""Inverse rotation and quantization: codes and scales byte for byte.

A last-bit difference of a cosine can turn over the bf16 rounding of a rotated channel and, more seldom, its
code: `FLIPS` of the bytes may differ.
"""

import pytest
import torch

from dsv4_trt.plugins.reference.codecs import dequantize, e4m3_decode
from tests.plugins.cuda.cuda_call import assert_close, assert_same_bytes, kernels, run_both
from tests.plugins.small_model import INV_FREQ

pytestmark = pytest.mark.gpu
FLIPS = 2e-4
DTYPES = [torch.bfloat16, torch.float32]


def inputs(tokens, heads, dim, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(-30, 20, (tokens, heads, 1), generator=generator)
    x = torch.randn(tokens, heads, dim, generator=generator) * 2.0**sizes
    positions = torch.randint(0, 1 << 20, (tokens,), generator=generator, dtype=torch.int32)
    return {"x": x.to(dtype), "inv_freq": INV_FREQ, "positions": positions}


def values(out):
    codes = e4m3_decode(out["out"].flatten(1))
    return dequantize(codes, out["scale"])


def compare(found, expected):
    assert_same_bytes(found["out"], expected["out"], share=FLIPS)
    assert_same_bytes(found["scale"], expected["scale"], share=FLIPS)
    # per block: large ones do not hide small ones; a turned code is off by 1/8, a turned scale by less
    blocks = [values(out).unflatten(1, (-1, 128)) for out in (found, expected)]
    largest = blocks[1].abs().amax(-1, keepdim=True)
    assert ((blocks[0] - blocks[1]).abs() <= largest / 8 + 1e-30).all()
    assert_close(values(found), values(expected), relative=2e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("tokens", "heads", "dim"),
    [
        *((t, 64, 512) for t in (1, 2, 129)),
        *((t, 16, 512) for t in (1, 33)),
        (17, 128, 512),
        (5, 8, 512),
        (9, 3, 512),  # an odd number of heads
        (1, 1, 512),
        (7, 3, 128),
        (4, 9, 256),
        (3, 2, 64),
        (3, 6, 192),
    ],
)
def test_codes_and_scales(tokens, heads, dim, dtype):
    device = "cuda" if tokens > 9 else "cpu"
    compare(*run_both("inv_rope_quant", device, **inputs(tokens, heads, dim, dtype)))


@pytest.mark.parametrize("pairs", [4, 16, 32])
def test_any_number_of_rotated_channels(pairs):
    arguments = inputs(6, 4, 256, torch.bfloat16)
    arguments["inv_freq"] = INV_FREQ[:pairs].clone()
    compare(*run_both("inv_rope_quant", **arguments))


def test_flash_width():
    compare(*run_both("inv_rope_quant", "cuda", **inputs(300, 64, 512, torch.bfloat16)))


@pytest.mark.parametrize("heads", [3, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_and_small_numbers_and_bad_ones(dtype, heads):
    arguments = inputs(8, heads, 512, dtype)
    x = arguments["x"]
    x[0] = 0
    x[1] = 1e-30
    x[2] = x[2].sign() * 3e38
    x[3, 0, 5] = torch.nan
    x[4, 1, 511] = torch.inf
    x[5, 2, 130] = -torch.inf
    x[6, 0, 448:] = torch.nan
    found, expected = run_both("inv_rope_quant", **arguments)
    bad = values(expected).isnan()
    assert bad.any()
    assert torch.equal(values(found).isnan(), bad)
    assert_same_bytes(found["scale"], expected["scale"])
    codes = [out["out"].flatten(1).view(torch.uint8)[~bad] for out in (found, expected)]
    assert_same_bytes(*codes, share=FLIPS)
    assert not values(found)[0].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_tokens(dtype):
    empty = {name: t.cuda() for name, t in inputs(0, 4, 512, dtype).items()}
    found = kernels()["inv_rope_quant"](**empty)
    assert found["out"].shape == (0, 4, 512)
    assert found["scale"].shape == (0, 16)
