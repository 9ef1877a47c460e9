"""Products with many token rows, through the ops that make them.

Where inputs are small whole numbers every sum is exact in fp32 and results must be equal; elsewhere
operands are exact in bf16 and only the order of fp32 sums differs (2e-5 of the norm), and bf16 results
may round the other way (half of an ulp, 2e-3 of one element); where a result is rounded to e4m3 in between,
that moves some codes (4e-3).
"""

import pytest
import torch

from dsv4_trt.plugins.reference.codecs import act8
from tests.plugins.cuda.cuda_call import assert_close, run_kernel
from tests.plugins.cuda.cuda_call import run_both as run_both_on

pytestmark = pytest.mark.gpu

SUMS = 2e-5
BF16 = 2e-3
ROUNDED_BETWEEN = 4e-3


def seeded(seed):
    return torch.Generator("cuda").manual_seed(seed)


def run_both(op, **arguments):
    return run_both_on(op, "cuda", **arguments)


def randn(*shape, generator):
    return torch.randn(shape, generator=generator, device="cuda")


def e4m3(values):
    return values.to(torch.float8_e4m3fn)


def scale_bytes(shape, generator, low=118, high=126):
    return torch.randint(
        low, high, shape, generator=generator, dtype=torch.uint8, device="cuda"
    ).view(torch.int8)


def blocks(size):
    return -(-size // 128)


def whole_numbers(shape, generator, most=3):
    return torch.randint(-most, most + 1, shape, generator=generator, device="cuda").float()


def linear_inputs(tokens, rows, depth, weight_format, generator, whole=True):
    def draw(shape):
        return whole_numbers(shape, generator) if whole else randn(*shape, generator=generator)

    x, weight = draw((tokens, depth)).bfloat16(), draw((rows, depth))
    if weight_format == "bf16":
        return {"x": x, "weight": weight.bfloat16(), "scale": None}
    scale = scale_bytes((blocks(rows), blocks(depth)), generator, 126 if whole else 110, 129)
    return {"x": x, "weight": e4m3(weight), "scale": scale}


@pytest.mark.parametrize("tokens", [16, 17, 33, 64, 65, 127, 128, 129, 200, 1000])
@pytest.mark.parametrize(
    ("weight_format", "act"), [("bf16", "none"), ("fp8", "none"), ("fp8", "act8_128")]
)
@pytest.mark.parametrize(("rows", "depth"), [(128, 128), (256, 384), (1536, 1024)])
def test_whole_numbers_are_multiplied_exactly(tokens, rows, depth, weight_format, act):
    generator = seeded(tokens + rows)
    inputs = linear_inputs(tokens, rows, depth, weight_format, generator)
    if act == "act8_128":
        inputs["x"][:, ::128] = 448  # scale 1
    found, expected = run_both(
        "linear", **inputs, weight_format=weight_format, act=act, out_dtype="F32"
    )
    assert torch.equal(found["out"], expected["out"])


@pytest.mark.parametrize("tokens", [2000, 2049])
@pytest.mark.parametrize(("rows", "depth"), [(1536, 128), (1536, 1152), (4096, 4096)])
def test_many_whole_numbers(tokens, rows, depth):
    generator = seeded(tokens + rows)
    inputs = linear_inputs(tokens, rows, depth, "fp8", generator)
    inputs["x"][:, ::128] = 448
    found, expected = run_both(
        "linear", **inputs, weight_format="fp8", act="act8_128", out_dtype="BF16"
    )
    assert torch.equal(found["out"], expected["out"])


@pytest.mark.parametrize("rows", [8, 64, 1000])
def test_rows_that_fill_no_tile(rows):
    generator = seeded(rows)
    inputs = linear_inputs(300, rows, 256, "bf16", generator)
    found, expected = run_both(
        "linear", **inputs, weight_format="bf16", act="none", out_dtype="BF16"
    )
    assert torch.equal(found["out"], expected["out"])


@pytest.mark.parametrize(
    ("tokens", "rows", "depth", "weight_format", "act", "out_dtype"),
    [
        (16, 1536, 4096, "fp8", "act8_128", "F32"),
        (17, 4096, 8192, "fp8", "act8_128", "BF16"),
        (64, 4096, 2048, "bf16", "none", "F32"),
        (129, 128, 8192, "bf16", "none", "F32"),
        (129, 128, 8192, "fp8", "none", "BF16"),
        (129, 128, 8192, "fp8", "act8_128", "F32"),
        (8192, 4096, 4096, "fp8", "act8_128", "BF16"),
        (8192, 4096, 4096, "fp8", "act8_128", "F32"),
        (8192, 1024, 4096, "bf16", "none", "F32"),
    ],
)
def test_real_sizes(tokens, rows, depth, weight_format, act, out_dtype):
    generator = seeded(tokens)
    inputs = linear_inputs(tokens, rows, depth, weight_format, generator, whole=False)
    found, expected = run_both(
        "linear", **inputs, weight_format=weight_format, act=act, out_dtype=out_dtype
    )
    limit = SUMS if out_dtype == "F32" else BF16
    assert_close(found["out"], expected["out"], relative=limit)


@pytest.mark.parametrize("act", ["none", "act8_128"])
def test_every_code_and_far_scales(act):
    generator = seeded(1)
    scales = [16, 30, 60, 100, 127, 140, 200, 230]
    rows, depth = 128 * len(scales), 512
    codes = torch.randint(
        0, 256, (rows, depth), generator=generator, dtype=torch.uint8, device="cuda"
    )
    codes[(codes & 127) == 127] = 0
    scale = (
        torch.tensor(scales, dtype=torch.uint8, device="cuda")
        .view(torch.int8)[:, None]
        .repeat(1, depth // 128)
    )
    found, expected = run_both(
        "linear",
        x=randn(150, depth, generator=generator).bfloat16(),
        weight=codes.view(torch.float8_e4m3fn),
        scale=scale,
        weight_format="fp8",
        act=act,
        out_dtype="F32",
    )
    for i in range(len(scales)):
        at = slice(128 * i, 128 * (i + 1))
        factor = 2.0 ** (127 - scales[i])
        assert_close(
            found["out"][:, at].double() * factor,
            expected["out"][:, at].double() * factor,
            relative=SUMS,
        )


@pytest.mark.parametrize(
    ("tokens", "act", "out_dtype"),
    [(300, "none", "F32"), (300, "act8_128", "F32"), (8000, "act8_128", "BF16")],
)
def test_nan_stays_in_its_rows(tokens, act, out_dtype):
    generator = seeded(2)
    inputs = linear_inputs(tokens, 512, 512, "fp8", generator, whole=False)
    inputs["x"][7, 3] = float("nan")
    inputs["x"][-1] = float("inf")
    codes = inputs["weight"].view(torch.uint8)
    codes[(codes & 127) == 0] = 1  # inf * 0 would be NaN
    for row, column, code in ((0, 0, 0x7F), (9, 511, 0xFF), (130, 77, 0x7F), (255, 300, 0xFF)):
        codes[row, column] = code
    inputs["scale"][3, 1] = -1  # 255: a NaN scale
    found, expected = run_both(
        "linear", **inputs, weight_format="fp8", act=act, out_dtype=out_dtype
    )
    missing = expected["out"].isnan()
    assert missing[:, [0, 9, 130, 255, 384, 511]].all()
    assert missing[7].all()
    assert not missing[0, [1, 8, 129, 254, 383]].any()
    finite = slice(0, -1)  # of the last token signs of infinities may meet in any order
    limit = SUMS if out_dtype == "F32" else BF16
    assert_close(found["out"][finite], expected["out"][finite], relative=limit)


@pytest.mark.parametrize(
    ("tokens", "heads", "groups", "rows", "act", "out_dtype"),
    [
        (65, 2, 1, 128, "none", "F32"),
        (65, 2, 1, 128, "act8_128", "F32"),
        (200, 8, 4, 256, "none", "BF16"),
        (200, 8, 4, 256, "act8_128", "F32"),
        (3000, 64, 8, 128, "none", "F32"),
        (3000, 64, 8, 128, "act8_128", "F32"),
        (3000, 64, 8, 128, "act8_128", "BF16"),
        (8192, 64, 8, 1024, "act8_128", "BF16"),
    ],
)
def test_grouped(tokens, heads, groups, rows, act, out_dtype):
    generator = seeded(tokens)
    x = randn(tokens, heads, 512, generator=generator).bfloat16()
    depth = heads * 512 // groups
    inputs = {"x": x}
    if act == "act8_128":
        codes, scale = act8(x.flatten(1), 128)
        scale[5, 1] = -1  # a NaN block
        inputs = {"x": codes.view(x.shape), "x_scale": scale}
    found, expected = run_both(
        "grouped_linear",
        **inputs,
        weight=e4m3(randn(groups * rows, depth, generator=generator)),
        scale=scale_bytes((groups * rows // 128, depth // 128), generator),
        groups=groups,
        act=act,
        out_dtype=out_dtype,
    )
    limit = SUMS if out_dtype == "F32" else BF16
    assert_close(found["out"], expected["out"], relative=limit)


@pytest.mark.parametrize(
    ("tokens", "hidden", "width"), [(64, 256, 128), (257, 512, 256), (4000, 4096, 2048)]
)
@pytest.mark.parametrize("act", ["none", "act8_128"])
def test_swiglu(tokens, hidden, width, act):
    generator = seeded(tokens)
    found, expected = run_both(
        "shared_expert",
        x=randn(tokens, hidden, generator=generator).bfloat16(),
        w13=e4m3(randn(2 * width, hidden, generator=generator) * 8),
        w13_scale=scale_bytes((2 * width // 128, hidden // 128), generator),
        w2=e4m3(randn(hidden, width, generator=generator) * 8),
        w2_scale=scale_bytes((hidden // 128, width // 128), generator),
        width=width,
        act=act,
        swiglu_limit=10.0,
        out_dtype="F32",
    )
    # bf16 in between may round the other way, and e4m3 after that
    assert_close(found["out"], expected["out"], relative=ROUNDED_BETWEEN)


def expert_inputs(tokens, hidden, width, experts, picks, generator):
    def packed(rows, columns):
        codes = torch.randint(
            0,
            256,
            (experts, rows, columns // 2),
            generator=generator,
            dtype=torch.uint8,
            device="cuda",
        )
        return codes.view(torch.int8), scale_bytes(
            (experts, rows, columns // 32), generator, 116, 124
        )

    w13, w13_scale = packed(2 * width, hidden)
    w2, w2_scale = packed(hidden, width)
    ids = (
        torch.rand(tokens, experts, generator=generator, device="cuda")
        .argsort(1)[:, :picks]
        .int()
        .contiguous()
    )
    return {
        "x": randn(tokens, hidden, generator=generator).bfloat16(),
        "expert_ids": ids,
        "weights": torch.rand(tokens, picks, generator=generator, device="cuda"),
        "expert_map": torch.arange(experts, dtype=torch.int32, device="cuda"),
        "w13": w13,
        "w13_scale": w13_scale,
        "w2": w2,
        "w2_scale": w2_scale,
        "weight_format": "fp4",
        "width": width,
        "pack": 2,
        "scale_rows": 1,
        "scale_cols": 32,
        "swiglu_limit": 10.0,
    }


@pytest.mark.parametrize(
    ("tokens", "hidden", "width", "experts", "picks"),
    [
        (70, 256, 128, 2, 2),
        (40, 512, 256, 16, 2),
        (300, 512, 256, 4, 2),
        (2000, 512, 256, 8, 4),
        (1024, 4096, 2048, 16, 6),
    ],
)
@pytest.mark.parametrize("act", ["none", "act8_128"])
def test_experts(tokens, hidden, width, experts, picks, act):
    generator = seeded(tokens)
    inputs = expert_inputs(tokens, hidden, width, experts, picks, generator)
    found, expected = run_both("experts", **inputs, act=act)
    assert_close(found["out"], expected["out"], relative=ROUNDED_BETWEEN)


def test_far_expert_scales():
    generator = seeded(3)
    inputs = expert_inputs(200, 256, 128, 2, 1, generator)
    far = torch.tensor([0, 1, 30, 127, 200], dtype=torch.uint8, device="cuda").view(torch.int8)
    inputs["w2_scale"] = far[torch.arange(256) % 5][None, :, None].expand(2, 256, 4).contiguous()
    inputs["w2_scale"][1, 17, 2] = -1  # 255: NaN
    # on the CPU: products of subnormal numbers are exact there
    inputs = {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
    found, expected = run_both_on("experts", **inputs, act="none")
    for i in range(5):
        factor = 2.0 ** (127 - [0, 1, 30, 127, 200][i])
        assert_close(
            found["out"][:, i::5].double() * factor,
            expected["out"][:, i::5].double() * factor,
            relative=ROUNDED_BETWEEN,
        )


def test_one_result_twice():
    generator = seeded(4)
    inputs = linear_inputs(2000, 1536, 4096, "fp8", generator, whole=False)
    runs = [
        run_kernel("linear", **inputs, weight_format="fp8", act="act8_128", out_dtype="F32")["out"]
        for _ in range(3)
    ]
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[0], runs[2])
