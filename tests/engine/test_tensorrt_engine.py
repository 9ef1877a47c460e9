"""The engine of TensorRT plans on a GPU: the native engine's logits bit for bit, from the same kernels.

It needs TensorRT 11, or TensorRT-RTX and a GPU of compute capability 12, and is skipped where no plan that
runs can be built. Neither was at hand so far: nothing in this file has run yet.
"""

from importlib import import_module
from importlib.util import find_spec

import pytest
import torch

from dsv4_trt.kv_plan import plan_for_sequences
from dsv4_trt.plugins.library_build import find_library
from dsv4_trt.plugins.tensorrt_headers import headers_in_environment
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.llm import LLM, KvCacheConfig
from dsv4_trt.runtime.open import device_architecture
from dsv4_trt.runtime.stepper import Chunk, Stepper
from dsv4_trt.targets import TENSORRT
from tests.runtime.llm.llms import greedy
from tests.workshop import logits, random_ids

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", params=[*TENSORRT])
def dirs(request, workshop, tiny_a):
    """The golden model as plans of this GPU, and natively."""
    from dsv4_trt.runtime.cuda.open import device_library

    engine, architecture = request.param, device_architecture()
    skip_unless_plans_run(engine, architecture)
    if not device_library(plugins=True).tensorrt_version:
        pytest.skip("DSV4_PLUGIN_LIBRARY names a library without TensorRT plugins")
    build = ("--engine", engine, "--target", architecture)
    return workshop.bundle_dir(tiny_a, build=build), workshop.bundle_dir(tiny_a)


def skip_unless_plans_run(engine, architecture):
    flavour = TENSORRT[engine]
    if architecture not in flavour.targets:
        pytest.skip(f"{engine} does not run on {architecture}")
    if find_spec(flavour.module) is None:
        pytest.skip(f"{flavour.module} is not installed")
    try:
        has_builder = hasattr(import_module(flavour.module), "Builder")
    except ImportError as error:
        pytest.skip(f"{flavour.module} can not be imported: {error}")
    if not has_builder:
        pytest.skip(f"{flavour.module} has no builder")
    no_library = find_library(architecture, plugins=True) is None
    if no_library and headers_in_environment() is None:
        pytest.skip("no library with TensorRT plugins, and no headers to build one with")


def open_plans(path, lens, **options):
    from dsv4_trt.runtime.tensorrt.open import open_tensorrt_engine

    bundle = open_bundle(path)
    return open_tensorrt_engine(bundle, plan_for_sequences(bundle.layout, list(lens)), **options)


def open_native(path, lens, **options):
    from dsv4_trt.runtime.cuda.open import open_cuda_engine

    bundle = open_bundle(path)
    return open_cuda_engine(bundle, plan_for_sequences(bundle.layout, list(lens)), **options)


def assert_same_bits(found, expected):
    assert expected.isfinite().all()
    assert torch.equal(found, expected)


@pytest.mark.parametrize("length", [3, 129, 257])
def test_logits_of_trunk_and_mtp(dirs, length):
    plans, native = open_plans(dirs[0], [640] * 2), open_native(dirs[1], [640] * 2)
    ids = random_ids(length + 4, seed=length)
    found, expected = (
        logits(engine, ids[:length], decode=ids[length:], chunk=100, mtp=True)
        for engine in (plans, native)
    )
    assert {*found} == {"prefill", "decode", "mtp", "mtp_decode"}
    for key, rows in expected.items():
        assert_same_bits(found[key], rows)


def batches(engine):
    """Logits of batches of several sizes, each of which decodes three steps beside a late prompt."""
    rows = []
    for batch in (1, 2, 3, 8, 33):
        stepper = Stepper(engine)
        opened = [stepper.kv.open() for _ in range(batch)]
        prompts = [random_ids(5 + i, seed=i) for i in range(batch)]
        first = [Chunk(row=r, token_ids=p) for r, p in zip(opened, prompts, strict=True)]
        rows.append(stepper.step(first).logits)
        late = stepper.kv.open()
        for step in range(3):
            ids = random_ids(batch, seed=100 + step)
            chunks = [Chunk(row=r, token_ids=[i]) for r, i in zip(opened, ids, strict=True)]
            rows.append(stepper.step(chunks).logits)
            more = Chunk(row=late, token_ids=random_ids(2 + 40 * step, seed=step), all_logits=True)
            rows.append(stepper.step([*chunks, more]).logits)
    return torch.cat(rows)


@pytest.mark.parametrize("graphs", [True, False])
def test_batches(dirs, graphs):
    plans = open_plans(dirs[0], [200] * 34, use_cuda_graphs=graphs)
    assert_same_bits(batches(plans), batches(open_native(dirs[1], [200] * 34)))


def test_a_graph_captured_short_replays_long(dirs):
    found = []
    for engine in (open_plans(dirs[0], [1100, 20_100]), open_native(dirs[1], [1100, 20_100])):
        stepper = Stepper(engine)
        rows = []
        for length in (1000, 20_000):
            row, ids = stepper.kv.open(), random_ids(length, seed=length)
            for start in range(0, length, 2048):
                stepper.step([Chunk(row=row, token_ids=ids[start : start + 2048])])
            for token in (7, 9, 11):
                rows.append(stepper.step([Chunk(row=row, token_ids=[token])]).logits)
        found.append(torch.cat(rows))
    assert_same_bits(*found)


def test_warming_up_leaves_no_trace(dirs):
    engine = open_plans(dirs[0], [640] * 3)
    stepper = Stepper(engine)
    row = stepper.kv.open()
    stepper.step([Chunk(row=row, token_ids=random_ids(300, seed=3))])
    before = {bucket: slab.clone() for bucket, slab in engine.slabs.items()}
    assert list(stepper.warm_up()) == list(reversed(engine.ladders.seqs.rungs))
    for bucket, slab in engine.slabs.items():
        assert torch.equal(slab, before[bucket])


def test_tokens_of_an_llm(dirs):
    prompts = [random_ids(length, seed=length) for length in (5, 290, 40)]
    found = []
    for path in dirs:
        config = KvCacheConfig(max_tokens=20_000)
        options = {"max_batch_size": 4, "max_seq_len": 4096}
        with LLM(path, skip_tokenizer_init=True, kv_cache_config=config, **options) as llm:
            runs = [llm.generate(prompts, greedy(8)) for _ in range(2)]
            found.append([request.outputs[0].token_ids for run in runs for request in run])
    assert found[0] == found[1]
