"""The engine on a GPU: the CPU engine's numbers, with captured graphs and without, at any context.

The models are the golden ones and one of Flash's width, whose weights are made up.
"""

import gc
import os
from dataclasses import replace
from math import prod

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from dsv4_trt.errors import ConfigError
from dsv4_trt.kv_plan import plan_for_sequences
from dsv4_trt.plugins.cuda_ops import TORCH_DTYPES
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.native import NativeEngine
from dsv4_trt.runtime.stepper import Chunk, Stepper
from tests.workshop import golden_roots, logits, random_ids, run_cli

gpu = pytest.mark.gpu
FULL_WIDTH = "flash-layers=4"  # two window layers, one of each ratio
MODELS = (*golden_roots(), pytest.param(FULL_WIDTH, marks=pytest.mark.full_width))


def model_dir(workshop, model, build=()):
    """The engine folder of one of `MODELS`."""
    if model == FULL_WIDTH:
        return workshop.dummy_dir(model, build)
    return workshop.bundle_dir(golden_roots()[model] / "checkpoint", build=build)


def cuda_engine(engine_dir, lens, precision="exact", **options):
    from dsv4_trt.runtime.cuda.open import open_cuda_engine

    bundle = open_bundle(engine_dir, precision=precision)
    return open_cuda_engine(bundle, plan_for_sequences(bundle.layout, list(lens)), **options)


def prefill(stepper, ids, chunk=2048):
    """A new row that holds `ids`, and the logits after the last one."""
    row = stepper.kv.open()
    for start in range(0, len(ids), chunk):
        out = stepper.step([Chunk(row=row, token_ids=ids[start : start + chunk])])
    return row, out.logits


def fabricate(engine, stepper, length):
    """A row that holds `length` tokens in pages of small finite values, without having computed them."""
    row = stepper.kv.open()
    rows, ends = np.array([row], np.int32), np.array([length], np.int32)
    stepper.kv.commit(stepper.kv.prepare(rows, ends))
    for slab in engine.slabs.values():
        for part in slab.split(1 << 16):
            part.random_(0x28, 0x48)
    return row


def assert_same(found, expected):
    """Sums of fp32 in another order: differences stay far below the spread of the logits."""
    limit = 1e-4 * max(1.0, expected.std().item())
    torch.testing.assert_close(found.cpu(), expected.cpu(), atol=limit, rtol=0)


@gpu
@pytest.mark.parametrize("golden", golden_roots())
@pytest.mark.parametrize("length", [3, 129, 257])
def test_exact_logits_equal_the_cpu(workshop, golden, length):
    checkpoint = golden_roots()[golden] / "checkpoint"
    ids = random_ids(length + 4, seed=length)
    engines = [workshop.engine(checkpoint, device=device) for device in ("cuda", "cpu")]
    mtp = open_bundle(workshop.bundle_dir(checkpoint)).mtp is not None
    found, expected = (
        logits(engine, ids[:length], decode=ids[length:], chunk=100, mtp=mtp) for engine in engines
    )
    for key, rows in expected.items():
        assert_same(found[key], rows)


@gpu
@pytest.mark.parametrize("indexer", ["fp4", "fp8", "bf16"])
def test_serving_logits_are_close_to_the_cpu(workshop, tiny_a, indexer):
    """One rounding difference flips a quantization step, so this shows gross errors only.

    What is sharp is each op by itself, in test_cuda_nodes.
    """
    build = ("--indexer_cache_dtype", indexer)
    ids = random_ids(150, seed=2)
    found, expected = (
        logits(workshop.engine(tiny_a, precision="serving", build=build, device=device), ids)[
            "prefill"
        ].cpu()
        for device in ("cuda", "cpu")
    )
    assert mean_error(found, expected) < 0.15


def mean_error(found, expected):
    return ((found - expected).norm(dim=-1) / expected.norm(dim=-1)).mean()


@gpu
@pytest.mark.full_width
def test_logits_of_full_width_equal_the_cpu(workshop, tmp_path):
    """The same made-up weights on both; few different tokens, so that the CPU meets few experts."""
    torch.set_num_threads(os.cpu_count() or 1)
    ids = [1000 * token for token in random_ids(150, vocab=16, seed=6)]
    engine_dir = workshop.dummy_dir(FULL_WIDTH, ("--no-mtp",))
    engine = cuda_engine(engine_dir, [400])
    found = logits(engine, ids[:147], decode=ids[147:])
    file = save_weights(engine, tmp_path / "rank0.safetensors")
    bundle = replace(open_bundle(engine_dir, precision="exact"), rank_files=(file,))
    expected = logits(NativeEngine(bundle, engine.plan), ids[:147], decode=ids[147:])
    for key, rows in expected.items():
        assert_same(found[key], rows)


def save_weights(engine, file):
    """The engine's weights as a rank file."""
    arena, tensors = engine.weights.arena, {}
    for name, placed in engine.weights.placed.items():
        start = placed.address - arena.data_ptr()
        end = start + prod(placed.shape) * placed.dtype.itemsize
        kept = arena[start:end].cpu().view(TORCH_DTYPES[placed.dtype])
        tensors[name] = kept.view(placed.shape)
    save_file(tensors, file)
    return file


@gpu
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("precision", ["exact", "serving"])
def test_graphs_change_nothing(workshop, model, precision):
    """Batches of several sizes, each decoding three steps: the same bits with graphs and without."""
    engine_dir = model_dir(workshop, model)
    found = []
    for options in ({}, {"use_cuda_graphs": False, "side_streams": False}):
        engine = cuda_engine(engine_dir, [64] * 34, precision, **options)
        rows = []
        for batch in (1, 2, 3, 8, 33):
            stepper = Stepper(engine)
            opened = [stepper.kv.open() for _ in range(batch)]
            prompts = [random_ids(5 + i, seed=i) for i in range(batch)]
            first = [Chunk(row=r, token_ids=p) for r, p in zip(opened, prompts, strict=True)]
            rows.append(stepper.step(first).logits)
            for step in range(3):
                ids = random_ids(batch, seed=100 + step)
                chunks = [Chunk(row=r, token_ids=[i]) for r, i in zip(opened, ids, strict=True)]
                rows.append(stepper.step(chunks).logits)
        found.append(torch.cat(rows).cpu())
    assert found[0].isfinite().all()
    assert torch.equal(*found)


@gpu
@pytest.mark.parametrize("model", MODELS)
def test_chunked_prefill_equals_one_shot(workshop, model):
    engine_dir = model_dir(workshop, model)
    engine = cuda_engine(engine_dir, [640])
    mtp = open_bundle(engine_dir).mtp is not None
    ids = random_ids(270, seed=4)
    whole = logits(engine, ids, mtp=mtp)
    for chunk in (5, 64, 127, 256):
        split = logits(engine, ids, chunk=chunk, mtp=mtp)
        for key in ("prefill", "mtp") if mtp else ("prefill",):
            assert_same(split[key], whole[key])


@gpu
@pytest.mark.parametrize("model", MODELS)
def test_a_graph_captured_short_replays_long(workshop, model):
    """Captured at 1,000 tokens, replayed at 100,000: what the same step says without a graph."""
    engine_dir = model_dir(workshop, model)
    long = random_ids(100_000, seed=1)
    found = []
    for graphs in (True, False):
        engine = cuda_engine(engine_dir, [1100, 100_100], "serving", use_cuda_graphs=graphs)
        stepper = Stepper(engine)
        row, _ = prefill(stepper, random_ids(1000, seed=0))
        short = [stepper.step([Chunk(row=row, token_ids=[7])]).logits for _ in range(2)]
        row, _ = prefill(stepper, long)
        found.append([*short, stepper.step([Chunk(row=row, token_ids=[9])]).logits])
    for with_graph, without in zip(*found, strict=True):
        assert with_graph.isfinite().all()
        assert torch.equal(with_graph, without)


@gpu
@pytest.mark.parametrize("model", MODELS)
def test_decode_at_a_million_tokens(workshop, model):
    build = ("--max_seq_len", "1048576")
    engine = cuda_engine(model_dir(workshop, model, build), [1 << 20], "serving")
    stepper = Stepper(engine)
    row = fabricate(engine, stepper, (1 << 20) - 4)
    steps = [stepper.step([Chunk(row=row, token_ids=[i])]).logits for i in (3, 4, 5)]
    assert all(step.isfinite().all() for step in steps)
    assert not torch.equal(steps[0], steps[1])


@gpu
@pytest.mark.parametrize("model", MODELS)
def test_warming_up_leaves_no_trace(workshop, model):
    engine_dir = model_dir(workshop, model)
    engine = cuda_engine(engine_dir, [640] * 3, "serving")
    stepper = Stepper(engine)
    row, _ = prefill(stepper, random_ids(300, seed=3))
    before = {bucket: slab.clone() for bucket, slab in engine.slabs.items()}
    assert list(stepper.warm_up()) == list(reversed(engine.ladders.seqs.rungs))
    for bucket, slab in engine.slabs.items():
        assert torch.equal(slab, before[bucket])
    warm = stepper.step([Chunk(row=row, token_ids=[5])]).logits
    cold = cuda_engine(engine_dir, [640] * 3, "serving", use_cuda_graphs=False)
    stepper = Stepper(cold)
    row, _ = prefill(stepper, random_ids(300, seed=3))
    assert torch.equal(warm, stepper.step([Chunk(row=row, token_ids=[5])]).logits)


@gpu
def test_the_step_after_a_failed_one_starts_from_whole_tables(workshop, tiny_a, monkeypatch):
    """Changes that a failed step took along are not lost: the next one copies the tables again."""
    engine = cuda_engine(workshop.bundle_dir(tiny_a), [640] * 3)
    stepper = Stepper(engine)
    row, _ = prefill(stepper, random_ids(40, seed=3))
    with monkeypatch.context() as patch:
        patch.setattr(engine._networks["trunk"], "_make_room", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            stepper.step([Chunk(row=row, token_ids=random_ids(300, seed=5))])
    found = stepper.step([Chunk(row=row, token_ids=random_ids(300, seed=5))]).logits
    fresh = Stepper(engine)
    row, _ = prefill(fresh, random_ids(40, seed=3))
    assert torch.equal(
        found, fresh.step([Chunk(row=row, token_ids=random_ids(300, seed=5))]).logits
    )


@gpu
def test_weights_arrive_as_they_are_in_the_file(workshop, tiny_a):
    engine = cuda_engine(workshop.bundle_dir(tiny_a), [64])
    file = open_bundle(workshop.bundle_dir(tiny_a)).rank_files[0]
    arena = engine.weights.arena
    for name, tensor in load_file(file).items():
        start = engine.weights.placed[name].address - arena.data_ptr()
        found = arena[start : start + tensor.nbytes].cpu()
        assert torch.equal(found, tensor.contiguous().view(-1).view(torch.int8)), name


@gpu
@pytest.mark.full_width
def test_dummy_weights_make_a_model_of_full_width(workshop):
    engine = cuda_engine(workshop.dummy_dir(FULL_WIDTH), [2000], "serving")
    _, found = prefill(Stepper(engine), random_ids(1500, vocab=129280, seed=2))
    assert found.isfinite().all()
    assert 0.1 < found.std() < 100


@gpu
def test_an_engine_gives_its_memory_back_at_once(workshop, tiny_a):
    gc.collect()
    gc.disable()
    try:
        before = torch.cuda.memory_allocated()
        engine = cuda_engine(workshop.bundle_dir(tiny_a), [640])
        stepper = Stepper(engine)
        assert list(stepper.warm_up())
        prefill(stepper, random_ids(300, seed=3))
        assert torch.cuda.memory_allocated() > before
        del engine, stepper
        assert torch.cuda.memory_allocated() == before
    finally:
        gc.enable()


@gpu
def test_several_ranks_on_a_gpu_are_refused(workshop, tiny_a):
    with pytest.raises(ConfigError, match=r"2 ranks.*--device cpu"):
        workshop.engine(tiny_a, tp=2, ep=2, device="cuda")


def test_dummy_weights_need_a_gpu(tmp_path):
    run_cli("build", "--preset", "tiny", "--dummy-weights", "--output_dir", tmp_path / "e")
    from dsv4_trt.runtime.open import open_engine

    bundle = open_bundle(tmp_path / "e")
    with pytest.raises(ConfigError, match=r"no weights.*--device cuda"):
        open_engine(bundle, plan_for_sequences(bundle.layout, [100]), device="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is present")
def test_a_missing_gpu_is_said_clearly(workshop, tiny_a):
    with pytest.raises(ConfigError, match=r"no CUDA device.*--device cpu"):
        workshop.engine(tiny_a, device="cuda")
