"""Routed experts against their reference: how picks are spread, what is illegal, and real widths.

Tolerances: with bf16 activations a sum in another order can turn a bf16 or e4m3 rounding over, for about
one value in a thousand; in fp32 only the order of sums differs.
"""

import pytest
import torch

from tests.plugins.cuda.cuda_call import assert_close, assert_same_bytes, kernels, run_both

pytestmark = pytest.mark.gpu
BF16, F32 = torch.bfloat16, torch.float32
TINY, FLASH, PRO = (256, 128), (4096, 2048), (7168, 3072)  # hidden size, expert width
FORMATS = [
    ("fp4", "act8_128", BF16),
    ("fp4", "none", BF16),
    ("fp8", "act8_128", BF16),
    ("fp8", "none", BF16),
    ("fp4", "none", F32),
    ("fp8", "act8_128", F32),
]
RELATIVE = {BF16: 3e-3, F32: 1e-5}
LIMIT = 2.0  # passed by some values of every row


def bank(format, local, rows, cols, device, seed):
    """Random weights of `local` experts and their scale bytes, so that products are about 1."""
    generator = torch.Generator(device).manual_seed(seed)
    block, size = ((1, 32), 3.0) if format == "fp4" else ((128, 128), 1.0)
    middle = 127 - round(torch.tensor(size * cols**0.5).log2().item())
    shape = (local, rows // block[0], cols // block[1])
    options = {"generator": generator, "device": device}
    scale = torch.randint(middle - 1, middle + 2, shape, **options).to(torch.uint8)
    if format == "fp4":
        shape = (local, rows, cols // 2)
        weight = torch.randint(-128, 128, shape, dtype=torch.int8, **options)
    else:
        weight = torch.randn(local, rows, cols, **options).to(torch.float8_e4m3fn)
    return weight, scale.view(torch.int8)


def call(format, act, dtype, sizes, ids, expert_map, *, local=None):
    """The op's arguments for these picks `[T, K]`; all tensors are on the GPU."""
    device = "cuda"
    hidden, width = sizes
    generator = torch.Generator(device).manual_seed(ids.shape[0])
    local = int(expert_map.max()) + 1 if local is None else local
    w13, w13_scale = bank(format, local, 2 * width, hidden, device, 1)
    w2, w2_scale = bank(format, local, hidden, width, device, 2)
    options = {"generator": generator, "device": device}
    return {
        "x": torch.randn(ids.shape[0], hidden, **options).to(dtype),
        "expert_ids": ids.to(device, torch.int32),
        "weights": torch.rand(ids.shape, **options),
        "expert_map": expert_map.to(device, torch.int32),
        "w13": w13,
        "w13_scale": w13_scale,
        "w2": w2,
        "w2_scale": w2_scale,
        "weight_format": format,
        "width": width,
        "pack": 2 if format == "fp4" else 1,
        "scale_rows": 1 if format == "fp4" else 128,
        "scale_cols": 32 if format == "fp4" else 128,
        "act": act,
        "swiglu_limit": LIMIT,
    }


def compare(arguments):
    """Runs both; returns the kernel's output."""
    found, expected = run_both("experts", reference_device="cuda", **arguments)
    assert_close(found["out"], expected["out"], relative=RELATIVE[arguments["x"].dtype])
    return found["out"]


def picks(tokens, topk, experts, seed=0):
    """Distinct experts for each token."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(tokens, experts, generator=generator).argsort(1)[:, :topk]


def hostile(ids, experts):
    """Some picks repeated, some illegal."""
    ids = ids.clone()
    flat = ids.view(-1)
    flat[1::7] = flat[:-1:7]
    flat[3::11] = -1
    flat[5::13] = experts
    flat[8::17] = 2**31 - 1
    flat[9::19] = -(2**31)
    return ids


def remote(experts, every, seed=0):
    """An expert map in which every `every`-th expert lives here, in shuffled order."""
    here = torch.arange(0, experts, every)
    expert_map = torch.full((experts,), -1)
    order = torch.randperm(len(here), generator=torch.Generator().manual_seed(seed))
    expert_map[here] = order
    return expert_map


@pytest.mark.parametrize("tokens", [1, 3, 8, 33, 130, 600])
@pytest.mark.parametrize(("format", "act", "dtype"), FORMATS)
def test_tiny(format, act, dtype, tokens):
    ids = hostile(picks(tokens, 2, 8), 8)
    compare(call(format, act, dtype, TINY, ids, remote(8, 1)))


@pytest.mark.parametrize("tokens", [2, 64, 600])
@pytest.mark.parametrize(("format", "act", "dtype"), FORMATS[::2])
def test_some_experts_are_elsewhere(format, act, dtype, tokens):
    ids = hostile(picks(tokens, 6, 16), 16)
    compare(call(format, act, dtype, TINY, ids, remote(16, 4)))


@pytest.mark.parametrize("tokens", [1, 3, 8, 64, 130, 600])
def test_flash(tokens):
    arguments = call("fp4", "act8_128", BF16, FLASH, picks(tokens, 6, 32), remote(32, 2))
    compare(arguments)


@pytest.mark.parametrize(("format", "act"), [("fp4", "none"), ("fp8", "act8_128")])
@pytest.mark.parametrize("tokens", [2, 200])
def test_flash_in_other_formats(format, act, tokens):
    compare(call(format, act, BF16, FLASH, picks(tokens, 6, 8), remote(8, 1)))


def test_flash_with_all_experts():
    ids = picks(130, 6, 256)
    compare(call("fp4", "act8_128", BF16, FLASH, ids, remote(256, 1)))


@pytest.mark.parametrize("tokens", [1, 33])
def test_pro(tokens):
    ids = picks(tokens, 6, 384)
    compare(call("fp4", "act8_128", BF16, PRO, ids, remote(384, 16)))


@pytest.mark.parametrize("experts", [3, 256, 384])
def test_many_tokens(experts):
    """Pairs for more blocks than there are, and several chunks in each."""
    ids = hostile(picks(8192, 3 if experts == 3 else 6, experts), experts)
    arguments = call("fp4", "act8_128", BF16, TINY, ids, remote(experts, 1))
    compare(arguments)


@pytest.mark.parametrize(
    "tokens", [1, 42, 43, 600]
)  # 42 * 6 pairs are the last that one block takes
@pytest.mark.parametrize("used", [0, 5])
def test_all_tokens_go_to_one_expert(tokens, used):
    ids = torch.full((tokens, 6), used)
    compare(call("fp4", "act8_128", BF16, TINY, ids, remote(6, 1)))


def test_tokens_without_a_local_expert_give_zeros():
    ids = torch.tensor([[1, 3], [-1, 9], [0, 1], [5, 7]])
    out = compare(call("fp4", "act8_128", BF16, TINY, ids, remote(8, 2)))
    assert not out[[0, 1, 3]].any()
    assert out[2].any()


@pytest.mark.parametrize("tokens", [3, 600])
def test_nothing_is_local(tokens):
    expert_map = torch.full((8,), -1)
    out = compare(call("fp4", "none", BF16, TINY, picks(tokens, 2, 8), expert_map, local=2))
    assert not out.any()


def test_map_beyond_the_local_experts_is_nothing():
    arguments = call("fp4", "none", BF16, TINY, picks(9, 2, 8), remote(8, 1))
    wrong = dict(arguments, expert_map=arguments["expert_map"].clone())
    right = dict(arguments, expert_map=arguments["expert_map"].clone())
    wrong["expert_map"][[2, 5]] = torch.tensor([8, 2**31 - 1]).to("cuda", torch.int32)
    right["expert_map"][[2, 5]] = -1
    outs = [kernels()["experts"](**arguments)["out"] for arguments in (right, wrong)]
    assert_same_bytes(*outs)


@pytest.mark.parametrize("tokens", [9, 130])
@pytest.mark.parametrize(("format", "act", "dtype"), [FORMATS[0], FORMATS[2], FORMATS[4]])
def test_bad_numbers_stay_in_their_token(format, act, dtype, tokens):
    arguments = call(format, act, dtype, TINY, picks(tokens, 2, 4), remote(4, 1))
    clean = compare(arguments)
    arguments["weights"][1, 0] = torch.nan
    arguments["weights"][2] = 0.0
    arguments["weights"][4] = torch.tensor([-1.5, -0.0], device="cuda")
    arguments["x"][6, 100] = torch.nan
    arguments["x"][7, 3] = torch.inf
    out = compare(arguments)
    assert out[[1, 6]].isnan().all()
    assert not out[2].any()
    others = [row for row in range(tokens) if row not in (1, 2, 4, 6, 7)]
    assert torch.equal(out[others], clean[others])


def test_no_tokens():
    arguments = call("fp4", "act8_128", BF16, TINY, picks(0, 2, 8), remote(8, 1))
    assert kernels()["experts"](**arguments)["out"].shape == (0, 256)


def test_last_expert_beyond_4_gib():
    hidden, width = PRO
    arguments = call("fp4", "act8_128", BF16, PRO, torch.zeros(3, 1), torch.zeros(1))
    expected = kernels()["experts"](**arguments)["out"]
    large = dict(arguments, expert_ids=arguments["expert_ids"] + 383)
    large["expert_map"] = torch.arange(384, dtype=torch.int32, device="cuda")
    for name in ("w13", "w13_scale", "w2", "w2_scale"):
        one = arguments[name]
        large[name] = torch.empty((384, *one.shape[1:]), dtype=torch.int8, device="cuda")
        large[name][-1] = one[0]
    assert large["w13"].numel() == 384 * 2 * width * hidden // 2 > 2**32
    found = kernels()["experts"](**large)["out"]
    # another number of groups may mean other tiles, and so another order of sums
    assert_close(found.cpu(), expected.cpu(), relative=RELATIVE[BF16])


@pytest.mark.parametrize("tokens", [4, 130])
def test_captured_and_repeated(tokens):
    """One graph serves any routing, and the same routing gives the same bits."""
    arguments = call("fp4", "act8_128", BF16, FLASH, picks(tokens, 6, 16), remote(16, 2))
    ids = arguments["expert_ids"]
    routings = [ids.clone(), torch.full_like(ids, 4), torch.full_like(ids, -1)]
    graph = torch.cuda.CUDAGraph()
    kernels()["experts"](**arguments)
    with torch.cuda.graph(graph):
        captured = kernels()["experts"](**arguments)["out"]
    for routing in (*routings, routings[0]):
        ids.copy_(routing)
        expected = kernels()["experts"](**arguments)["out"]
        captured.view(torch.int8).fill_(-1)
        graph.replay()
        assert torch.equal(captured, expected)
