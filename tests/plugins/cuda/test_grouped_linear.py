"""`grouped_linear` against its reference: bf16, fp32 and quantized inputs, token counts, real widths."""

import pytest
import torch

from dsv4_trt.plugins.reference import codecs
from tests.plugins.cuda.gemm_case import BF16, DTYPES, F32, activations, compare, fp8_weight

pytestmark = pytest.mark.gpu
TOKENS = (1, 2, 7, 8, 9, 33, 64, 65, 130)


def call(tokens, groups, heads, head_dim, rows, act, dtype, out_dtype):
    """The op's arguments: `heads` heads in all, `rows` rows a group."""
    x = activations(tokens, heads * head_dim, dtype=dtype, seed=tokens)
    weight = fp8_weight(groups * rows, heads // groups * head_dim)
    inputs = {"x": x.view(tokens, heads, head_dim)}
    if act == "act8_128":
        codes, scale = codecs.act8(x, 128)
        inputs = {"x": codes.view(tokens, heads, head_dim), "x_scale": scale}
    return {
        **inputs,
        "weight": weight["weight"],
        "scale": weight["scale"],
        "groups": groups,
        "act": act,
        "out_dtype": out_dtype,
    }


@pytest.mark.parametrize("out_dtype", DTYPES)
@pytest.mark.parametrize(("dtype", "act"), [(BF16, "none"), (BF16, "act8_128"), (F32, "none")])
def test_formats_and_token_counts(dtype, act, out_dtype):
    for groups, heads, head_dim, rows in ((1, 1, 128, 128), (2, 8, 128, 256), (4, 8, 512, 128)):
        for tokens in TOKENS:
            compare(
                "grouped_linear",
                **call(tokens, groups, heads, head_dim, rows, act, dtype, out_dtype),
            )


@pytest.mark.parametrize("act", ["none", "act8_128"])
@pytest.mark.parametrize("tokens", [1, 8, 40])
@pytest.mark.parametrize(("groups", "heads"), [(8, 64), (16, 128), (2, 16)])
def test_real_widths(groups, heads, tokens, act):
    compare("grouped_linear", **call(tokens, groups, heads, 512, 1024, act, BF16, "BF16"))


@pytest.mark.parametrize("tokens", [5, 66])
def test_codes_and_scales_that_are_nan(tokens):
    arguments = call(tokens, 2, 4, 128, 128, "act8_128", BF16, "F32")
    arguments["x"].view(torch.uint8)[1, 0, 7] = 0x7F
    arguments["x"].view(torch.uint8)[2, 3, 7] = 0xFF
    arguments["x_scale"].view(torch.uint8)[3, 1] = 0xFF
    out = compare("grouped_linear", **arguments)
    assert out[1, :128].isnan().all()
    assert out[2, 128:].isnan().all()
    assert out[3, :128].isnan().all()
    assert out.isnan().sum() == 3 * 128
