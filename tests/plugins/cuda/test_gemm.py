"""What all products have in common, and fp4 weights, which only `experts` has: capture, scales."""

import pytest
import torch

from tests.plugins.cuda.cuda_call import assert_close, kernels, run_both
from tests.plugins.cuda.gemm_case import (
    BF16,
    F32,
    activations,
    bf16_weight,
    compare,
    fp8_weight,
    generator,
)

pytestmark = pytest.mark.gpu
WIDTH = 128


def expert(tokens, dtype, act, scale_of_row):
    """One expert that every token picks; `scale_of_row` gives the bytes of w2's rows."""
    options = {"generator": generator(0, "cpu")}
    hidden = len(scale_of_row)
    codes = {"dtype": torch.int8, **options}
    scale = torch.tensor(scale_of_row, dtype=torch.uint8)[:, None].repeat(1, WIDTH // 32)
    return {
        "x": torch.randn(tokens, hidden, **options).to(dtype),
        "expert_ids": torch.zeros(tokens, 1, dtype=torch.int32),
        "weights": torch.ones(tokens, 1),
        "expert_map": torch.zeros(1, dtype=torch.int32),
        "w13": torch.randint(-128, 128, (1, 2 * WIDTH, hidden // 2), **codes),
        "w13_scale": torch.full((1, 2 * WIDTH, hidden // 32), 121, dtype=torch.int8),
        "w2": torch.randint(-128, 128, (1, hidden, WIDTH // 2), **codes),
        "w2_scale": scale.view(torch.int8)[None],
        "weight_format": "fp4",
        "width": WIDTH,
        "pack": 2,
        "scale_rows": 1,
        "scale_cols": 32,
        "act": act,
        "swiglu_limit": 10.0,
    }


@pytest.mark.parametrize(("dtype", "act"), [(BF16, "none"), (BF16, "act8_128"), (F32, "none")])
@pytest.mark.parametrize("tokens", [1, 9, 20])
def test_fp4_scales_of_every_size(dtype, act, tokens):
    # a row a byte, then bytes that mix within a tile of rows
    bytes_ = [*range(240), *[255] * 16, *[119, 121, 128, 129, 131, 126, 200, 1] * 16]
    arguments = expert(tokens, dtype, act, bytes_)
    found, expected = run_both("experts", **arguments)
    # a wrong scale is a factor of two; one inner value turned over is 1e-2, and single values cancel
    relative = 1e-3 if dtype == F32 else 2e-2
    for row, byte in enumerate(bytes_):
        mine, theirs = found["out"][:, row], expected["out"][:, row]
        assert theirs.isnan().all() == (byte == 255)
        # a bf16 result below 2^-126 has fewer bits
        assert_close(mine, theirs, relative=relative, absolute=2.0**-133 * tokens)


def captured(op, **arguments):
    """The op's outputs and a graph that computes them."""
    kernels()[op](**arguments)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernels()[op](**arguments)["out"]
    return graph, out


@pytest.mark.parametrize("tokens", [1, 9, 200])
@pytest.mark.parametrize(("dtype", "act"), [(BF16, "act8_128"), (F32, "none")])
def test_replays_follow_their_inputs(tokens, dtype, act):
    x = activations(tokens, 4096, dtype=dtype)
    arguments = {"x": x, **fp8_weight(1536, 4096), "act": act, "out_dtype": "F32"}
    graph, out = captured("linear", **arguments)
    for seed in range(2):
        x.copy_(activations(tokens, 4096, dtype=dtype, seed=seed + 10))
        graph.replay()
        torch.cuda.synchronize()
        assert_close(out.cpu(), compare("linear", **arguments), relative=0)


def test_the_last_rows_of_a_weight_beyond_4_gib():
    rows, depth = 530_000, 4096
    weight = torch.empty(rows, depth, dtype=BF16, device="cuda")
    weight[-64:] = bf16_weight(64, depth)["weight"]
    weight[:64] = bf16_weight(64, depth, seed=5)["weight"]
    x = activations(3, depth)
    out = kernels()["linear"](
        x=x, weight=weight, weight_format="bf16", act="none", out_dtype="F32"
    )["out"]
    for part in (slice(0, 64), slice(rows - 64, rows)):
        expected = x.float() @ weight[part].float().T
        assert_close(out[:, part].cpu(), expected.cpu(), relative=1e-5)
