"""Head norm, rotation and insertion of window keys, against the reference.

Sums are added in another order than the reference's and cosines differ by a last bit: that turns over
`FLIPS` of the roundings to bf16, and of the cache bytes. What no slot names keeps its bytes.
"""

import pytest
import torch

from dsv4_trt.plugins.reference import REFERENCES
from tests.plugins.cuda.cuda_call import (
    assert_close,
    assert_same_bytes,
    kernels,
    on_device,
    run_both,
    run_kernel,
)
from tests.plugins.paged import POISON, PagedSequences
from tests.plugins.small_model import FORMATS, INV_FREQ, SWA, changed_rows, layout

pytestmark = pytest.mark.gpu
FLIPS = 1e-3
CUTS = [[130, 1, 129], [3, 0, 1], [5, 123, 8]]  # chunks of three sequences


def random_rows(tokens, heads, dim, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(tokens, heads * dim, generator=generator) * 3
    sizes = torch.randint(-12, 8, (tokens, 1), generator=generator)
    kv = torch.randn(tokens, dim, generator=generator) * 2.0**sizes
    return {"q": q.to(dtype), "kv": kv.to(dtype)}


def alone(tokens, heads, dim, format, pages=8, per_page=64, seed=0):
    """One sequence with its own pool; two thirds of its rows have a slot."""
    generator = torch.Generator().manual_seed(seed)
    dtype = torch.float32 if format == "fp32" else torch.bfloat16
    raw = {"fp32": 4 * dim, "bf16": 2 * dim, "fp8": dim + 80}[format]
    slots = torch.randperm(pages * per_page, generator=generator)[:tokens]
    slots[torch.rand(tokens, generator=generator) < 1 / 3] = -1
    return {
        **random_rows(tokens, heads, dim, dtype, seed),
        "inv_freq": INV_FREQ,
        "positions": torch.randint(0, 1 << 20, (tokens,), generator=generator, dtype=torch.int32),
        "seq_ids": torch.zeros(tokens, dtype=torch.int32),
        "table_rows": torch.tensor([1], dtype=torch.int32),
        "slot_mapping": slots.int(),
        "block_table": torch.randperm(3 * 2 * pages, generator=generator).view(1, 3, -1).int(),
        "pool": torch.full((6 * pages, -(-raw * per_page // 64) * 64), POISON, dtype=torch.int8),
        "num_heads": heads,
        "D": dim,
        "eps": 1e-6,
        "format": format,
        "layer_row": 0,
        "entries_per_page": per_page,
        "window_pages": pages,
    }


def compare(found, expected, format):
    if format == "fp32":
        assert_close(found["q"], expected["q"], relative=1e-6)
        assert_close(found["kv"], expected["kv"], relative=1e-6)
        pools = [out["pool"].view(torch.float32) for out in (found, expected)]
        assert_close(*pools, relative=1e-6)
        return
    for name in ("q", "kv"):
        assert_close(found[name], expected[name], relative=1e-3)
        numbers = [out[name].nan_to_num(7.0) for out in (found, expected)]  # NaNs have many bytes
        assert_same_bytes(*numbers, share=FLIPS)
        error = (numbers[0].double() - numbers[1].double()).norm(dim=-1)  # of each row or head
        assert (error <= 0.02 * numbers[1].double().norm(dim=-1)).all()
    assert_same_bytes(found["pool"], expected["pool"], share=FLIPS / 10)


def both(**arguments):
    """Kernel and reference, both on the GPU."""
    found = run_kernel("qkv_rope_insert", **arguments)
    return found, REFERENCES["qkv_rope_insert"](**on_device(arguments))


@pytest.mark.parametrize("formats", FORMATS)
def test_paged_sequences(formats):
    kv = layout(*formats)[SWA]
    paged = PagedSequences(layout(*formats), 3, 300)
    dtype = torch.float32 if formats[0] == "fp32" else torch.bfloat16
    for index, counts in enumerate(zip(*CUTS, strict=True)):
        step = paged.step(counts, padding=index % 3)
        before = paged.pool(SWA).clone()
        found, expected = both(
            **random_rows(len(step.positions), 8, 512, dtype, index),
            inv_freq=INV_FREQ,
            positions=step.positions,
            seq_ids=step.seq_ids,
            table_rows=step.table_rows,
            slot_mapping=step.slots[SWA],
            block_table=step.tables[SWA],
            pool=before,
            num_heads=8,
            D=512,
            eps=1e-6,
            format=formats[0],
            layer_row=1,
            entries_per_page=kv.entries_per_page,
            window_pages=kv.window_pages,
        )
        compare(found, expected, formats[0])
        rows, beyond = changed_rows(before.cuda(), found["pool"], kv)
        assert rows == set(paged.named_rows(step, SWA, 1))
        assert not beyond
        paged.pool(SWA).copy_(expected["pool"])
        paged.commit(step)


@pytest.mark.parametrize("format", ["fp8", "bf16", "fp32"])
@pytest.mark.parametrize(
    ("tokens", "heads", "dim"),
    [
        (1, 64, 512),
        (1, 128, 512),
        (9, 1, 512),
        (9, 5, 512),  # odd: a head a warp
        (130, 16, 512),
        (300, 64, 512),  # two heads a warp
        (7, 3, 128),
        (65, 4, 256),
        (11, 2, 320),
    ],
)
def test_widths(tokens, heads, dim, format):
    compare(*both(**alone(tokens, heads, dim, format)), format)


def test_small_pages():
    compare(*both(**alone(16, 2, 512, "fp8", 16, per_page=2)), "fp8")


@pytest.mark.parametrize("format", ["fp8", "bf16"])
def test_zeros_and_bad_numbers(format):
    arguments = alone(12, 4, 512, format)
    arguments["slot_mapping"] = torch.arange(12, dtype=torch.int32)
    q, kv = arguments["q"], arguments["kv"]
    q[0], kv[0] = 0, 0
    q[1, 600], kv[1, 100] = torch.nan, torch.nan
    q[2, 5], kv[2, 447] = torch.inf, -torch.inf
    kv[3, 500] = torch.nan
    q[4], kv[4] = 1e-30, 1e-30
    q[5], kv[5] = 3e38, 3e38
    found, expected = run_both("qkv_rope_insert", **arguments)
    compare(found, expected, format)
    assert expected["kv"][1].isnan().sum() == (64 if format == "fp8" else 1)
    assert not found["q"][0].any()


def one_bad(name, value):
    arguments = alone(40, 2, 512, "fp8")
    arguments["slot_mapping"] = torch.arange(40, dtype=torch.int32)
    arguments[name] = torch.full_like(arguments[name], value)
    return arguments


@pytest.mark.parametrize("value", [-1, -(2**31), 2**31 - 1, 1 << 20])
@pytest.mark.parametrize("name", ["slot_mapping", "seq_ids", "table_rows", "block_table"])
def test_bad_indices_write_nothing(name, value):
    arguments = one_bad(name, value)
    found = run_kernel("qkv_rope_insert", **arguments)
    assert torch.equal(found["pool"].cpu(), arguments["pool"])
    assert not found["q"].isnan().any()


def test_no_tokens():
    arguments = alone(0, 4, 512, "fp8")
    found = run_kernel("qkv_rope_insert", **arguments)
    assert found["q"].shape == (0, 4, 512)
    assert torch.equal(found["pool"].cpu(), arguments["pool"])


def test_last_page_of_a_pool_beyond_4_gib():
    arguments = alone(64, 2, 512, "fp8", pages=1)
    arguments["slot_mapping"] = torch.arange(64, dtype=torch.int32)
    arguments["block_table"][:] = 3
    expected = run_kernel("qkv_rope_insert", **arguments)["pool"][3]
    assert (expected.cpu() != POISON).any()
    moved = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    pages = (1 << 32) // arguments["pool"].shape[1] + 2
    moved["pool"] = torch.empty(pages, arguments["pool"].shape[1], dtype=torch.int8, device="cuda")
    moved["pool"][-1] = POISON
    moved["block_table"][:] = pages - 1
    kernels()["qkv_rope_insert"](**moved)
    assert torch.equal(moved["pool"][-1], expected)
