"""An `LLM` over plans: pools that leave room for their activations, and the tokens of the native engine."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("cuda.bindings")
from dsv4_trt.errors import CapacityError, ConfigError
from dsv4_trt.plugins.reference import REFERENCES
from dsv4_trt.runtime import open as runtime_open
from dsv4_trt.runtime import pool_plan
from dsv4_trt.runtime.cuda.footprint import footprint
from dsv4_trt.runtime.kv_cache_config import KvCacheConfig
from dsv4_trt.runtime.llm import LLM
from dsv4_trt.runtime.pool_plan import plan_for_device
from dsv4_trt.runtime.sampling import sampler
from dsv4_trt.runtime.tensorrt import open as tensorrt_open
from tests.runtime.llm.llms import greedy
from tests.workshop import random_ids

PROMPTS = [random_ids(length, seed=length) for length in (5, 290, 40)]
FREE = 3 << 30


@pytest.fixture
def gpu(host, monkeypatch):
    """The host where all ask for a GPU."""
    monkeypatch.setattr(runtime_open, "resolve_device", lambda device: "cuda")
    monkeypatch.setattr(tensorrt_open, "device_library", lambda *, plugins: host.library)
    monkeypatch.setattr(
        tensorrt_open, "torch", SimpleNamespace(device=lambda *_: torch.device("cpu"))
    )
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (FREE, FREE))
    return host


def open_llm(path, **options):
    config = KvCacheConfig(max_tokens=3000)
    return LLM(path, skip_tokenizer_init=True, kv_cache_config=config, **options)


def generate(llm):
    """Prompts together, and again, when their beginnings are cached."""
    params = greedy(6)
    runs = [llm.generate(PROMPTS, params) for _ in range(2)]
    return [request.outputs[0].token_ids for run in runs for request in run]


def test_tokens_are_the_native_engine_s(plan_dir, native_dir, gpu, monkeypatch):
    monkeypatch.setattr(sampler, "sample_op", lambda device: REFERENCES["sample"])
    with open_llm(plan_dir) as llm:
        found = generate(llm)
        with pytest.raises(
            ConfigError, match="this LLM runs TensorRT plans; build with --engine na"
        ):
            llm.profile()
    assert gpu.gpu.num_replays > 6  # warmed up, then decoded by graphs
    monkeypatch.setattr(runtime_open, "resolve_device", lambda device: "cpu")
    with open_llm(native_dir) as llm:
        assert found == generate(llm)


def test_pools_leave_room_for_activations(plan_dir, gpu, monkeypatch):
    from dsv4_trt.runtime.bundle import open_bundle

    bundle = open_bundle(plan_dir)
    fixed = footprint(bundle, 0, 1)
    taken = []
    monkeypatch.setattr(pool_plan, "free_bytes", lambda *_: fixed + (1 << 20) + (1 << 28))
    for extra in (0, 1 << 27):
        monkeypatch.setattr(
            tensorrt_open, "plan_arena_bytes", lambda _, extra=extra: (1 << 20) + extra
        )
        taken.append(plan_for_device(bundle, KvCacheConfig(), "cuda").total_bytes)
    assert taken[0] - taken[1] == pytest.approx(0.9 * (1 << 27), rel=0.01)


def test_the_arena_is_what_the_largest_plan_says(plan_dir, gpu):
    from dsv4_trt.runtime.bundle import open_bundle

    assert tensorrt_open.plan_arena_bytes(open_bundle(plan_dir)) == 1 << 20


def test_plans_that_leave_no_room_are_refused(plan_dir, gpu, monkeypatch):
    from dsv4_trt.runtime.bundle import open_bundle

    monkeypatch.setattr(tensorrt_open, "plan_arena_bytes", lambda _: 1 << 40)
    with pytest.raises(CapacityError, match=r"steps of max_num_tokens 96 take .* of the GPU"):
        plan_for_device(open_bundle(plan_dir), KvCacheConfig(), "cuda")


def test_smaller_sizes_than_built_fit_the_profiles(plan_dir, gpu, monkeypatch):
    monkeypatch.setattr(sampler, "sample_op", lambda device: REFERENCES["sample"])
    with open_llm(plan_dir, max_batch_size=3, max_num_tokens=50, max_seq_len=300) as llm:
        assert [len(ids) for ids in generate(llm)] == [6] * 6
