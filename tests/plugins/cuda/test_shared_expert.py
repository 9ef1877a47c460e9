"""`shared_expert` against its reference: clamping, roundings between the products, real widths.

A first sum beside a rounding boundary turns an inner value over by one step of bf16 (2^-7) or, with act8,
of e4m3 (2^-3); one such value among the 128 of a small row is 1e-2 of the result.
"""

import pytest
import torch

from tests.plugins.cuda.gemm_case import BF16, DTYPES, F32, activations, compare, fp8_weight

pytestmark = pytest.mark.gpu
TOKENS = (1, 2, 8, 9, 33, 64, 65, 130)
RELATIVE = {"none": 4e-3, "act8_128": 1e-2}


def call(tokens, hidden, width, act, dtype, out_dtype, limit=2.0):
    """The op's arguments; gate and up are about 1, so that some pass the limit."""
    low = 128 - round(hidden**0.5).bit_length()
    up = fp8_weight(2 * width, hidden, seed=1, low=low, high=low + 2)
    down = fp8_weight(hidden, width, seed=2)
    x = torch.randn(
        tokens, hidden, generator=torch.Generator("cuda").manual_seed(tokens), device="cuda"
    )
    return {
        "x": x.to(dtype),
        "w13": up["weight"],
        "w13_scale": up["scale"],
        "w2": down["weight"],
        "w2_scale": down["scale"],
        "width": width,
        "act": act,
        "swiglu_limit": limit,
        "out_dtype": out_dtype,
    }


@pytest.mark.parametrize("out_dtype", DTYPES)
@pytest.mark.parametrize("act", ["none", "act8_128"])
@pytest.mark.parametrize("dtype", DTYPES.values())
def test_formats_and_token_counts(dtype, act, out_dtype):
    for hidden, width in ((256, 128), (128, 384), (1024, 512)):
        for tokens in TOKENS:
            arguments = call(tokens, hidden, width, act, dtype, out_dtype)
            exact = dtype == F32 and act == "none" and out_dtype == "F32"
            compare("shared_expert", relative=2e-5 if exact else RELATIVE[act], **arguments)


def test_the_limit_is_reached():
    few, many = (call(9, 512, 256, "none", BF16, "F32", limit=limit) for limit in (1e9, 0.5))
    relative = RELATIVE["none"]
    unclamped = compare("shared_expert", relative=relative, **few)
    clamped = compare("shared_expert", relative=relative, **many)
    assert (unclamped - clamped).norm() > 0.1 * unclamped.norm()


@pytest.mark.parametrize("act", ["none", "act8_128"])
@pytest.mark.parametrize(("hidden", "width"), [(4096, 2048), (7168, 3072)])
@pytest.mark.parametrize("tokens", [1, 8, 40])
def test_real_widths(hidden, width, tokens, act):
    arguments = call(tokens, hidden, width, act, BF16, "BF16")
    compare("shared_expert", relative=RELATIVE[act], **arguments)


@pytest.mark.parametrize("tokens", [6, 70])
def test_what_is_not_finite_stays_in_its_row(tokens):
    arguments = call(tokens, 512, 256, "none", BF16, "F32")
    arguments["x"][1, 300] = torch.nan
    arguments["x"][3, 5] = torch.inf
    arguments["x"][4] = activations(1, 512)[0] * 0
    out = compare("shared_expert", relative=RELATIVE["none"], **arguments)
    assert out[1].isnan().all()
    assert out[[0, 2, 5]].isfinite().all()
    assert not out[4].any()
