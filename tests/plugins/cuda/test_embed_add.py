"""Embedding and addition: one rounding each, so every bit must be the reference's."""

import pytest
import torch

from tests.plugins.cuda.cuda_call import assert_same_bytes, kernels, run_both

pytestmark = pytest.mark.gpu
FLOATS = {"F32": torch.float32, "BF16": torch.bfloat16}


@pytest.mark.parametrize("out_dtype", ["F32", "BF16"])
@pytest.mark.parametrize(
    ("tokens", "width"), [(0, 64), (1, 4096), (3, 7168), (130, 256), (5, 20), (2, 7)]
)
def test_embed(tokens, width, out_dtype):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(50, width, generator=generator).bfloat16()
    ids = torch.randint(90, 150, (tokens,), generator=generator, dtype=torch.int32)
    ids[:4] = torch.tensor([100, 149, 99, 150], dtype=torch.int32)[:tokens]
    ids[4:8] = torch.tensor([-1, 2**31 - 1, -(2**31), 0], dtype=torch.int32)[: max(tokens - 4, 0)]
    found, expected = run_both(
        "embed",
        token_ids=ids,
        weight=weight,
        row_offset=torch.tensor([100], dtype=torch.int32),
        out_dtype=out_dtype,
    )
    assert_same_bytes(found["out"], expected["out"])


def test_embed_beyond_4_gib():
    weight = torch.empty(300_000, 8192, dtype=torch.bfloat16, device="cuda")
    weight[-1] = torch.arange(8192)
    found = kernels()["embed"](
        token_ids=torch.tensor([299_999, 300_000], dtype=torch.int32, device="cuda"),
        weight=weight,
        row_offset=torch.zeros(1, dtype=torch.int32, device="cuda"),
        out_dtype="BF16",
    )["out"]
    assert torch.equal(found[0], weight[-1])
    assert not found[1].any()


@pytest.mark.parametrize("out_dtype", ["F32", "BF16"])
@pytest.mark.parametrize("dtype", ["F32", "BF16"])
@pytest.mark.parametrize(("tokens", "width"), [(0, 64), (1, 7), (3, 4096), (130, 7168), (33, 255)])
def test_add(tokens, width, dtype, out_dtype):
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(tokens, width, generator=generator)
    b = torch.randn(tokens, width, generator=generator).to(FLOATS[dtype])
    a.flatten()[:4] = torch.tensor([torch.inf, torch.nan, -0.0, 3e38])[: a.numel()]
    b.flatten()[:4] = torch.tensor([-torch.inf, 1.0, -0.0, 3e38])[: a.numel()].to(b.dtype)
    found, expected = run_both("add", a=a, b=b, out_dtype=out_dtype)
    found, expected = found["out"], expected["out"]
    assert torch.equal(found.isnan(), expected.isnan())
    assert_same_bytes(found.nan_to_num(5.0), expected.nan_to_num(5.0))
