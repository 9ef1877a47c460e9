"""One function, many ways to call it: chunks, decode, batches, order, ranks. Exact precision."""

from dataclasses import replace

import pytest
import torch

from dsv4_trt.convert.random_checkpoint import write_random_checkpoint
from dsv4_trt.dtypes import DType
from dsv4_trt.presets import TINY
from dsv4_trt.runtime.stepper import Chunk, Stepper
from tests.workshop import logits, random_ids

LIMIT = 1e-4  # logits; scale about 3


@pytest.fixture(scope="module")
def engine(workshop, tiny_a):
    return workshop.engine(tiny_a)


@pytest.mark.parametrize(
    ("length", "steps"),
    [
        (1, 9),
        (2, 9),
        (3, 9),
        (4, 9),
        (5, 4),
        (126, 6),
        (127, 5),
        (128, 4),
        (129, 4),
        (254, 8),
        (255, 3),
        (256, 3),
        (257, 4),
    ],
)
def test_prefill_then_decode_equals_prefill(engine, length, steps):
    ids = random_ids(length + steps, seed=length)
    whole = logits(engine, ids)["prefill"]
    split = logits(engine, ids[:length], decode=ids[length:])
    torch.testing.assert_close(split["prefill"], whole[:length], atol=LIMIT, rtol=0)
    torch.testing.assert_close(split["decode"], whole[length:], atol=LIMIT, rtol=0)


@pytest.mark.parametrize("chunk", [1, 5, 64, 127, 256])
def test_chunked_prefill_equals_one_shot(engine, chunk):
    ids = random_ids(270 if chunk > 1 else 140, seed=chunk)
    whole = logits(engine, ids, mtp=True)
    split = logits(engine, ids, chunk=chunk, mtp=True)
    for key in ("prefill", "mtp"):
        torch.testing.assert_close(split[key], whole[key], atol=LIMIT, rtol=0)


def test_ragged_batch_equals_single_runs(engine):
    """Prefill of {5, 130, 300} in one step, then decode steps mixed with a prefill chunk."""
    prompts = [random_ids(n, seed=n) for n in (5, 130, 300)]
    late = random_ids(77, seed=77)
    single = [logits(engine, ids[:-2], decode=ids[-2:]) for ids in prompts]
    late_single = logits(engine, late)["prefill"]
    stepper = Stepper(engine)
    rows = [stepper.kv.open() for _ in prompts]
    first = [
        Chunk(row=row, token_ids=ids[:-2], all_logits=True)
        for row, ids in zip(rows, prompts, strict=True)
    ]
    parts = stepper.step(first).logits.split([len(c.token_ids) for c in first])
    for found, expected in zip(parts, single, strict=True):
        torch.testing.assert_close(found, expected["prefill"], atol=LIMIT, rtol=0)
    stepper.kv.close(rows[0])
    late_row = stepper.kv.open()
    for step, part in enumerate((late[:40], late[40:])):
        chunks = [
            Chunk(row=row, token_ids=[ids[len(ids) - 2 + step]])
            for row, ids in zip(rows[1:], prompts[1:], strict=True)
        ]
        found = stepper.step([*chunks, Chunk(row=late_row, token_ids=part)]).logits
        for row, expected in zip(found, single[1:], strict=False):
            torch.testing.assert_close(row, expected["decode"][step], atol=LIMIT, rtol=0)
        expected = late_single[39 if step == 0 else -1]
        torch.testing.assert_close(found[-1], expected, atol=LIMIT, rtol=0)


@pytest.mark.parametrize("changed", [0, 3, 4, 127, 128, 200, 258])
def test_a_token_changes_nothing_before_it(engine, changed):
    ids = random_ids(260, seed=1)
    other = [*ids[:changed], (ids[changed] + 7) % 512, *ids[changed + 1 :]]
    before, after = (logits(engine, x, chunk=64)["prefill"] for x in (ids, other))
    # experts see other groups of rows, so sums differ in their last bits and in nothing else
    torch.testing.assert_close(after[:changed], before[:changed], atol=2e-5, rtol=0)
    assert (after[changed] - before[changed]).abs().max() > 0.1


def test_reused_pages_pass_nothing_on(workshop, tiny_a, engine):
    """A prompt of 3 tokens right after a long one equals a fresh engine: no state is inherited."""
    short = random_ids(3, seed=5)
    stepper = Stepper(engine)
    row = stepper.kv.open()
    stepper.step([Chunk(row=row, token_ids=random_ids(300, seed=6))])
    stepper.kv.close(row)
    row = stepper.kv.open()
    chunk = Chunk(row=row, token_ids=short, all_logits=True)
    reused = stepper.step([chunk]).logits
    fresh = workshop.engine(tiny_a, lens=(8,))
    torch.testing.assert_close(reused, logits(fresh, short)["prefill"], atol=0, rtol=0)


def test_poisoned_pools_change_nothing(workshop, tiny_a, engine):
    """Pages start as garbage (NaN bytes): nothing unwritten is ever read."""
    ids = random_ids(140, seed=9)
    poisoned = workshop.engine(tiny_a, lens=(160,))
    for environment in poisoned._ranks:
        for name, tensor in environment.items():
            if name.startswith("kv."):
                tensor.fill_(-1)  # every byte 0xff: NaN in every format
    clean = logits(engine, ids[:130], decode=ids[130:])
    found = logits(poisoned, ids[:130], decode=ids[130:])
    for key in ("prefill", "decode"):
        torch.testing.assert_close(found[key], clean[key], atol=0, rtol=0)


@pytest.mark.parametrize(("tp", "ep"), [(2, 2)])
def test_ranks_give_the_same_logits(workshop, tiny_a, engine, tp, ep):
    ids = random_ids(133, seed=3)
    one = logits(engine, ids[:130], decode=ids[130:], mtp=True)
    many = logits(workshop.engine(tiny_a, tp=tp, ep=ep), ids[:130], decode=ids[130:], mtp=True)
    for key, rows in one.items():
        torch.testing.assert_close(many[key], rows, atol=LIMIT, rtol=0)


@pytest.mark.parametrize("scale_dtype", [DType.F8_E8M0, DType.F32], ids=["fp4", "fp8"])
@pytest.mark.parametrize(("tp", "ep"), [(2, 1), (2, 2), (4, 2)])
def test_ranks_that_split_experts_give_the_same_logits(
    workshop, tmp_path_factory, scale_dtype, tp, ep
):
    """Experts wide enough to be cut, and a shared expert that is cut at tp 2 and whole at tp 4."""
    fp8 = scale_dtype is DType.F32
    spec = replace(
        TINY,
        vocab_size=512,
        o_groups=4,
        moe_intermediate_size=256,
        expert_dtype="fp8" if fp8 else "fp4",
    )
    checkpoint = tmp_path_factory.getbasetemp() / f"wide-{scale_dtype}" / "hf"
    if not checkpoint.exists():
        checkpoint.parent.mkdir()
        write_random_checkpoint(spec, checkpoint, seed=3, scale_dtype=scale_dtype, base_copies=fp8)
    ids = random_ids(133, seed=3)
    one = logits(workshop.engine(checkpoint), ids[:130], decode=ids[130:], mtp=True)
    engine = workshop.engine(checkpoint, tp=tp, ep=ep)
    many = logits(engine, ids[:130], decode=ids[130:], mtp=True)
    for key, rows in one.items():
        torch.testing.assert_close(many[key], rows, atol=LIMIT, rtol=0)


@pytest.mark.parametrize("kv", ["fp8", "bf16"])
@pytest.mark.parametrize("indexer", ["fp4", "fp8", "bf16"])
def test_serving_chunks_agree_in_every_cache_format(workshop, tiny_a, kv, indexer):
    """Rounding happens before a key is used, so fresh and stored keys are the same numbers."""
    build = ("--kv_cache_dtype", kv, "--indexer_cache_dtype", indexer)
    engine = workshop.engine(tiny_a, precision="serving", build=build, lens=(200,))
    ids = random_ids(150, seed=11)
    whole, split = logits(engine, ids)["prefill"], logits(engine, ids, chunk=37)["prefill"]
    relative = (split - whole).norm(dim=-1) / whole.norm(dim=-1)
    assert relative.mean() < 0.05
