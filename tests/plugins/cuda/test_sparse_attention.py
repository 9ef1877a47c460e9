"""Sparse attention on the GPU against its reference: decode, mixes, exact and odd sizes, hostile inputs."""

import math

import pytest
import torch

from dsv4_trt.plugins.reference import REFERENCES
from tests.plugins.cuda.attention_case import Case, Geometry, real
from tests.plugins.cuda.cuda_call import (
    assert_close,
    kernels,
    on_device,
    run_both,
    run_kernel,
)

pytestmark = pytest.mark.gpu
EDGES = [0, 1, 2, 3, 126, 127, 128, 129, 255, 511, 1000]
# Both round probabilities and outputs to bf16 (by 2^-9 at most), from sums in another order.
BF16 = 4e-3
FP32 = 1e-5  # sums of up to some thousand terms in another order


def check(case, relative=BF16, reference_device="cpu"):
    found, expected = run_both("sparse_attention", reference_device, **case.arguments)
    rows = case.real_rows
    assert_close(found["out"][rows], expected["out"][rows], relative=relative)


@pytest.mark.parametrize(
    ("ratio", "format", "heads"),
    [
        (0, "fp8", 64),
        (4, "fp8", 64),
        (128, "fp8", 64),
        (0, "bf16", 8),
        (4, "bf16", 128),
        (128, "bf16", 32),
        (4, "fp8", 8),
        (128, "fp8", 16),
        (4, "fp8", 128),
    ],
)
def test_decode_at_every_boundary(ratio, format, heads):
    check(Case(real(format, ratio), ratio, heads, EDGES, decodes=len(EDGES)))


@pytest.mark.parametrize("format", ["fp8", "bf16"])
@pytest.mark.parametrize("heads", [16, 32, 64])
@pytest.mark.parametrize("batch", [1, 3, 33, 140])
def test_batches_of_any_size(batch, heads, format):
    starts = [700 + 37 * s for s in range(batch)]
    check(
        Case(real(format, 4), 4, heads, starts, picks=128, decodes=batch, seed=batch),
        reference_device="cuda",
    )


@pytest.mark.parametrize(("heads", "picks"), [(64, 512), (128, 1024), (16, 512)])
def test_full_lists_of_picks(heads, picks):
    starts = [4 * picks + 900, 4 * picks - 3, 20]
    check(Case(real("fp8", 4), 4, heads, starts, picks=picks, decodes=3))


@pytest.mark.parametrize("format", ["fp8", "bf16"])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("heads", [16, 64])
def test_long_contexts(heads, batch, format):
    starts = [384_000, 5000, 127, 12_799][:batch]
    check(Case(real(format, 128), 128, heads, starts, decodes=batch, columns=4096))


@pytest.mark.parametrize("format", ["fp8", "bf16"])
@pytest.mark.parametrize("ratio", [0, 4, 128])
def test_decodes_mixed_with_chunks_and_padding(ratio, format):
    starts = [300, None, 7, 0, 90, 260, None]
    counts = [1, 1, 1, 131, 40, 3, 1]
    case = Case(real(format, ratio), ratio, 64, starts, counts, picks=64, decodes=3, padding=3)
    check(case)


@pytest.mark.parametrize("ratio", [0, 4, 128])
def test_rows_of_a_chunk_one_by_one(ratio):
    """Sequences of several rows, all of them given to the kernel of the decode rows."""
    starts, counts = [0, 250, 40], [140, 9, 100]
    case = Case(real("fp8", ratio), ratio, 64, starts, counts, picks=32, decodes=249)
    check(case, reference_device="cuda")


def test_without_inverse_rotation():
    check(Case(real("fp8", 4), 4, 64, EDGES, decodes=len(EDGES), inverse_rope=False))


@pytest.mark.parametrize("ratio", [0, 4, 128])
def test_exact(ratio):
    starts, counts = [0, 3, 127, 500, None], [135, 130, 1, 5, 1]
    case = Case(
        real("fp32", ratio), ratio, 8, starts, counts, picks=64, dtype=torch.float32, padding=2
    )
    check(case, FP32)


@pytest.mark.parametrize(
    ("format", "dtype", "prob_dtype"),
    [
        ("fp8", torch.float32, "F32"),
        ("bf16", torch.float32, "F32"),
        ("fp32", torch.bfloat16, "BF16"),
        ("fp8", torch.bfloat16, "F32"),
    ],
)
def test_every_mix_of_formats(format, dtype, prob_dtype):
    case = Case(
        real(format, 4),
        4,
        16,
        [900, 5, 130],
        picks=64,
        dtype=dtype,
        prob_dtype=prob_dtype,
        decodes=3,
    )
    check(case, FP32 if dtype is torch.float32 else BF16)


@pytest.mark.parametrize("ratio", [4, 128])
def test_odd_sizes(ratio):
    row = 72 * 4
    odd = Geometry(
        format="fp32",
        dim=72,
        rope_dim=16,
        swa_per_page=10,
        window_pages=14,
        per_page=3,
        swa_page_bytes=10 * row + 4,
        page_bytes=3 * row,
    )
    case = Case(odd, ratio, 5, [0, 400, 3], [129, 2, 1], picks=7, dtype=torch.float32)
    check(case, FP32)


@pytest.mark.parametrize("format", ["fp8", "fp32"])
def test_hostile_picks(format):
    dtype = torch.float32 if format == "fp32" else torch.bfloat16
    case = Case(
        real(format, 4), 4, 16, EDGES, picks=96, hostile=True, decodes=len(EDGES), dtype=dtype
    )
    check(case, FP32 if format == "fp32" else BF16)
    case.arguments["topk"][:] = -1
    check(case, FP32 if format == "fp32" else BF16)


@pytest.mark.parametrize("format", ["fp8", "fp32"])
@pytest.mark.parametrize("bad", [-1, -(2**31), 2**31 - 1, 10_000])
def test_an_entry_without_a_page_is_no_key(bad, format):
    dtype = torch.float32 if format == "fp32" else torch.bfloat16
    case = Case(real(format, 4), 4, 16, [1500, 1024], picks=300, decodes=2, dtype=dtype)
    expected = REFERENCES["sparse_attention"](
        **{
            **case.arguments,
            "topk": case.arguments["topk"].masked_fill(case.arguments["topk"] // 64 == 2, -1),
        }
    )["out"]
    case.arguments["block_table"][1, :, 2] = bad
    found = run_kernel("sparse_attention", **case.arguments)["out"].cpu()
    assert_close(found, expected, relative=FP32 if format == "fp32" else BF16)


@pytest.mark.parametrize("format", ["fp8", "fp32"])
def test_extreme_sinks(format):
    dtype = torch.float32 if format == "fp32" else torch.bfloat16
    case = Case(real(format, 4), 4, 16, [1500, 0, 130], picks=300, decodes=3, dtype=dtype)
    sinks = [math.inf, -math.inf, 1e30, -1e30, 3e38, 88.0, 200.0, 0.0]
    case.arguments["sinks"] = torch.tensor(sinks * 2)
    found, expected = run_both("sparse_attention", **case.arguments)
    assert_close(found["out"], expected["out"], relative=FP32 if format == "fp32" else BF16)
    assert not found["out"][:, 0].any()
    assert found["out"][:, 1].any()


@pytest.mark.parametrize("format", ["fp8", "fp32"])
def test_bad_numbers_stay_where_they_are_seen(format):
    dtype = torch.float32 if format == "fp32" else torch.bfloat16
    case = Case(real(format, 4), 4, 16, [1500, 700, 130, 9], picks=64, decodes=4, dtype=dtype)
    case.arguments["kv"][1, 3] = math.nan
    case.arguments["q"][2, 5, 100] = math.nan
    case.arguments["q"][3, 6, 100] = math.inf
    found, expected = run_both("sparse_attention", **case.arguments)
    assert_close(found["out"], expected["out"], relative=FP32 if format == "fp32" else BF16)
    bad = found["out"].isnan().all(-1)
    assert bad[1].all()
    assert not bad[0].any()
    assert bad[2].nonzero().flatten().tolist() == [5]


@pytest.mark.parametrize("decodes", [2, 0], ids=["decode", "prefill"])
@pytest.mark.parametrize("ratio", [4, 128])
def test_the_last_page_of_a_pool_larger_than_4_gib(ratio, decodes):
    case = Case(real("fp8", ratio), ratio, 16, [3000, 400], picks=64, decodes=decodes)
    expected = REFERENCES["sparse_attention"](**case.arguments)["out"]
    there = on_device(case.arguments)
    for table, pool in (("swa_block_table", "swa_pool"), ("block_table", "pool")):
        small = there[pool]
        count = 2**32 // small.shape[1] + len(small)
        large = torch.empty(count, small.shape[1], dtype=torch.int8, device="cuda")
        large[-len(small) :] = small
        there[pool] = large
        there[table] = torch.where(there[table] < 0, -1, there[table] + (count - len(small))).int()
    found = kernels()["sparse_attention"](**there)["out"].cpu()
    assert_close(found, expected, relative=BF16)


@pytest.mark.parametrize("ratio", [4, 128])
def test_the_same_bits_every_time(ratio):
    case = Case(real("fp8", ratio), ratio, 64, [50_000, 900, 2000], decodes=3)
    first = run_kernel("sparse_attention", **case.arguments)["out"]
    for _ in range(3):
        assert torch.equal(run_kernel("sparse_attention", **case.arguments)["out"], first)


@pytest.mark.parametrize("ratio", [0, 4, 128])
def test_a_launch_captured_short_is_replayed_long(ratio):
    columns = 1024 if ratio == 128 else 128
    sizes = {"columns": columns, "decodes": 3}
    short = Case(real("fp8", ratio), ratio, 64, [0, 5, None], **sizes)
    long = Case(real("fp8", ratio), ratio, 64, [30_000, 5000, 1023], seed=1, **sizes)
    static = on_device(short.arguments)
    kernels()["sparse_attention"](**static)  # loads the kernels
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernels()["sparse_attention"](**static)["out"]
    for case in (short, long, short):
        for name, value in case.arguments.items():
            if isinstance(value, torch.Tensor):
                static[name].copy_(value)
        graph.replay()
        torch.cuda.synchronize()
        expected = REFERENCES["sparse_attention"](**case.arguments)["out"]
        rows = case.real_rows
        assert_close(out.cpu()[rows], expected[rows], relative=BF16)
