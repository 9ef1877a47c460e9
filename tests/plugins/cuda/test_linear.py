"""`linear` against its reference: formats, roundings, token counts around every tile size, real widths."""

import pytest
import torch

from tests.plugins.cuda.cuda_call import assert_close, assert_same_bytes, run_both, run_kernel
from tests.plugins.cuda.gemm_case import (
    BF16,
    DTYPES,
    F32,
    WEIGHTS,
    activations,
    bf16_weight,
    compare,
    fp8_weight,
    generator,
)

pytestmark = pytest.mark.gpu
TOKENS = (1, 2, 3, 7, 8, 9, 16, 17, 33, 64, 65, 130)
SIZES = {
    "fp8": ((128, 128), (384, 256), (1536, 4096)),
    "bf16": ((24, 128), (64, 256), (1000, 4096)),
}


@pytest.mark.parametrize("out_dtype", DTYPES)
@pytest.mark.parametrize("act", ["none", "act8_128"])
@pytest.mark.parametrize("weight_format", WEIGHTS)
@pytest.mark.parametrize("dtype", DTYPES.values())
def test_formats_and_token_counts(dtype, weight_format, act, out_dtype):
    for rows, depth in SIZES[weight_format]:
        weight = WEIGHTS[weight_format](rows, depth)
        for tokens in TOKENS:
            x = activations(tokens, depth, dtype=dtype, seed=tokens)
            compare("linear", x=x, **weight, act=act, out_dtype=out_dtype)


@pytest.mark.parametrize("dtype", DTYPES.values())
@pytest.mark.parametrize("depth", [40, 96, 300])
def test_depths_without_whole_blocks(dtype, depth):
    x = activations(5, depth, dtype=dtype)
    compare("linear", x=x, **bf16_weight(70, depth), act="none", out_dtype="F32")


def test_leading_dimensions_and_no_tokens():
    weight = fp8_weight(256, 256)
    arguments = {**weight, "act": "act8_128", "out_dtype": "BF16"}
    x = activations(3, 4, 256)
    out = compare("linear", x=x, **arguments)
    flat = run_kernel("linear", x=x.view(12, 256), **arguments)["out"]
    assert torch.equal(out.view(12, 256), flat.cpu())
    assert run_kernel("linear", x=x[:, :0], **arguments)["out"].shape == (3, 0, 256)


@pytest.mark.parametrize(("dtype", "act"), [(BF16, "none"), (BF16, "act8_128"), (F32, "none")])
def test_scales_of_every_size(dtype, act):
    """A scale is a power of two from 2^-127 up; byte 255 is NaN."""
    bytes_ = [0, 1, 100, 130, 200, 255]
    weight = fp8_weight(128 * len(bytes_), 256, device="cpu")
    weight["scale"] = torch.tensor(bytes_, dtype=torch.uint8)[:, None].repeat(1, 2).view(torch.int8)
    x = torch.randn(9, 256, generator=generator(3, "cpu")).to(dtype)
    found, expected = run_both("linear", x=x, **weight, act=act, out_dtype="F32")
    blocks = zip(found["out"].split(128, 1), expected["out"].split(128, 1), bytes_, strict=True)
    for mine, theirs, byte in blocks:
        assert theirs.isnan().all() == (byte == 255)
        assert theirs.count_nonzero() == theirs.numel()
        assert_close(mine, theirs, relative=1e-5)


@pytest.mark.parametrize("weight_format", WEIGHTS)
@pytest.mark.parametrize(("dtype", "act"), [(BF16, "none"), (BF16, "act8_128"), (F32, "none")])
@pytest.mark.parametrize("tokens", [7, 70])
def test_what_is_not_finite_stays_in_its_row(weight_format, dtype, act, tokens):
    x = activations(tokens, 512, dtype=dtype)
    x[1, 300] = torch.nan
    x[3, 5] = torch.inf
    x[4, 511] = -torch.inf
    x[6] = 0
    weight = WEIGHTS[weight_format](256, 512)
    out = compare("linear", x=x, **weight, act=act, out_dtype="F32")
    assert out[1].isnan().all()
    assert not out[[3, 4]].isfinite().any()
    assert out[[0, 2, 5]].isfinite().all()
    assert not out[6].any()


def test_values_of_act8_at_its_edges():
    """Zeros, the least amax, ties between codes, and a block whose largest value is a power of two."""
    x = torch.zeros(4, 256)
    x[1] = 1e-6
    x[2] = torch.arange(256) / 16 + 1
    x[3, :128] = 448 * 2.0**-9 * (1 + torch.arange(128) / 128)
    weight = fp8_weight(128, 256, device="cpu")
    compare("linear", x=x.bfloat16(), **weight, act="act8_128", out_dtype="F32")


REAL = [  # format, rows, depth, tokens
    ("fp8", 1536, 4096, (1, 8, 32)),
    ("fp8", 32768, 1024, (1, 17)),
    ("fp8", 8192, 1024, (1, 9)),
    ("fp8", 4096, 8192, (1, 8, 33)),
    ("bf16", 2048, 4096, (1, 5)),
    ("bf16", 64, 4096, (1, 12)),
    ("fp8", 7168, 16384, (3, 40)),
    ("bf16", 1024, 7168, (2,)),
    ("bf16", 129280, 4096, (1, 5)),
]


@pytest.mark.parametrize(("weight_format", "rows", "depth", "tokens"), REAL)
def test_real_widths(weight_format, rows, depth, tokens):
    weight = WEIGHTS[weight_format](rows, depth)
    act = "act8_128" if weight_format == "fp8" else "none"
    for count in tokens:
        x = activations(count, depth, seed=count)
        compare("linear", x=x, **weight, act=act, out_dtype="F32")


@pytest.mark.parametrize(("rows", "depth"), [(1536, 4096), (4096, 8192)])
@pytest.mark.parametrize("tokens", [1, 8, 24])
def test_sums_have_one_order(rows, depth, tokens):
    weight = fp8_weight(rows, depth)
    x = activations(tokens, depth)
    arguments = {"x": x, **weight, "act": "act8_128", "out_dtype": "F32"}
    first = run_kernel("linear", **arguments)["out"]
    for _ in range(5):
        assert_same_bytes(run_kernel("linear", **arguments)["out"], first)
