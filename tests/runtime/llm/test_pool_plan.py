"""`KvCacheConfig`: what it refuses, and the pools that come of it."""

from dataclasses import replace

import pytest

from dsv4_trt.errors import CapacityError, ConfigError
from dsv4_trt.kv_layout import Bucket
from dsv4_trt.kv_plan import check_plan, concurrency, largest_in_memory
from dsv4_trt.mapping import Mapping
from dsv4_trt.rank_tensors import rank_tensors
from dsv4_trt.runtime import llm_open, pool_plan
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.kv.retention import tails_per_step
from dsv4_trt.runtime.kv_cache_config import KvCacheConfig
from dsv4_trt.runtime.llm_open import limit_sizes
from dsv4_trt.runtime.pool_plan import free_bytes, plan_for_device

GIB = 1 << 30


@pytest.fixture(scope="module")
def built(workshop, tiny_a):
    return open_bundle(workshop.bundle_dir(tiny_a, build=("--max_seq_len", "32768")))


@pytest.fixture
def bundle(built, monkeypatch):
    """The bundle, on a machine with 4 GiB to spare."""
    monkeypatch.setattr(pool_plan, "free_bytes", lambda *_: 4 * GIB)
    monkeypatch.setattr(pool_plan, "_step_bytes", lambda *_: 0)
    return limit_sizes(built, 8, None, 16384)


def plan(bundle, device="cpu", **config):
    config = KvCacheConfig(**config)
    config.check()
    return plan_for_device(bundle, config, device)


def least(bundle, tails=1):
    return bundle.layout.trunk.peak_pages_per_sequence(bundle.build.max_seq_len, tails)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"enable_block_reuse": 1}, "enable_block_reuse is 1"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_tokens": 5.0}, r"max_tokens is 5\.0"),
        ({"max_gpu_total_bytes": True}, "max_gpu_total_bytes is True"),
        ({"free_gpu_memory_fraction": 0}, "free_gpu_memory_fraction is 0"),
        ({"free_gpu_memory_fraction": 1.5}, "free_gpu_memory_fraction is 1.5"),
        ({"free_gpu_memory_fraction": float("nan")}, "free_gpu_memory_fraction is nan"),
        ({"expected_mix": "8K"}, "'8K' is no part of a mix"),
        ({"pool_pages": {"huge": 5}}, "'huge'; expected large, middle, small"),
        ({"pool_pages": {"large": -1}}, r"pool_pages\['large'\] is -1"),
        ({"tail_retention": "oldest"}, "tail_retention is 'oldest'"),
        ({"expected_mix": "4x32K"}, "1 to max_seq_len, 16384"),
    ],
)
def test_illegal_configs(bundle, config, message):
    with pytest.raises(ConfigError, match=message):
        plan(bundle, **config)


def test_a_cpu_holds_the_mix_and_a_gpu_is_filled(bundle):
    """The default of a CPU is max_batch_size sequences of 8K."""
    on_cpu, on_gpu = plan(bundle), plan(bundle, "cuda")
    assert on_cpu == plan(bundle, expected_mix="8x8K")
    assert 7 <= concurrency(on_cpu, 8192).sequences <= 8
    page = max(bundle.layout.page_bytes.values())
    assert 0 <= 0.9 * 4 * GIB - on_gpu.total_bytes <= 3 * page
    assert plan(bundle, expected_mix="2x2K").num_pages == least(bundle)
    assert on_cpu.layout == bundle.layout


def test_a_gpu_keeps_room_for_its_steps(bundle, monkeypatch):
    monkeypatch.setattr(pool_plan, "_step_bytes", lambda *_: GIB)
    page = max(bundle.layout.page_bytes.values())
    assert 0 <= 0.9 * 3 * GIB - plan(bundle, "cuda").total_bytes <= 3 * page
    assert plan(bundle) == plan(bundle, expected_mix="8x8K")


def test_steps_that_do_not_fit_are_refused(built, monkeypatch):
    monkeypatch.setattr(pool_plan, "free_bytes", lambda *_: 4 * GIB)
    monkeypatch.setattr(pool_plan, "_arena_bytes", lambda *_: 0)
    monkeypatch.setattr("dsv4_trt.runtime.cuda.footprint.footprint", lambda *_: 4 * GIB)
    with pytest.raises(CapacityError, match=r"steps of max_num_tokens 2048 take .*4\.00 GiB"):
        plan(built, "cuda")


def test_several_ranks_on_a_gpu_are_refused_before_anything_is_planned(built, monkeypatch):
    monkeypatch.setattr("dsv4_trt.runtime.open.resolve_device", lambda device: device)
    several = replace(built, mapping=Mapping(tp_size=2))
    with pytest.raises(ConfigError, match=r"2 ranks.*--device cpu"):
        llm_open.open_executor(several, None, KvCacheConfig(), "cuda", 1)


def test_the_smallest_limit_counts(bundle):
    whole = plan(bundle)
    for config in (
        {"max_gpu_total_bytes": whole.total_bytes // 2},
        {"free_gpu_memory_fraction": whole.total_bytes / 2 / (4 * GIB)},
    ):
        found = plan(bundle, **config)
        page = max(bundle.layout.page_bytes.values())
        assert 0 <= whole.total_bytes / 2 - found.total_bytes <= 3 * page
    for device in ("cpu", "cuda"):
        found = plan(bundle, device, max_tokens=65536, expected_mix="64x8K")
        assert found == plan(bundle, max_tokens=65536)
        assert found.total_bytes <= whole.total_bytes


def test_pages_of_a_pool_can_be_set(bundle):
    found = plan(bundle, pool_pages={"small": 700, "middle": 500, "large": 2000})
    assert found.num_pages == {Bucket.SMALL: 700, Bucket.MIDDLE: 500, Bucket.LARGE: 2000}
    assert plan(bundle, pool_pages={"small": 999}).num_pages[Bucket.SMALL] == 999


def test_what_does_not_hold_one_request_is_refused_with_what_does(bundle):
    trunk, fraction = bundle.layout.trunk, 1e-3
    small = int(4 * GIB * fraction)
    largest = largest_in_memory(trunk, small)
    with pytest.raises(CapacityError, match=f"largest max_seq_len that fits is {largest}$"):
        plan(bundle, free_gpu_memory_fraction=fraction)
    plan(limit_sizes(bundle, None, None, largest), free_gpu_memory_fraction=fraction)
    with pytest.raises(CapacityError, match=f"largest max_seq_len that fits is {largest + 1}$"):
        plan(limit_sizes(bundle, None, None, largest + 2), max_tokens=largest + 1)
    with pytest.raises(CapacityError, match=r"small pool is set to 3 pages.*largest max_seq_len"):
        plan(bundle, pool_pages={"small": 3})
    with pytest.raises(CapacityError, match="not even one token fits"):
        plan(bundle, max_gpu_total_bytes=1000)


@pytest.mark.parametrize(("retention", "tails"), [("newest", 1), ("every", 9), (4, 3)])
def test_a_step_of_one_sequence_fits_with_every_tail_that_it_leaves(bundle, retention, tails):
    config = KvCacheConfig(tail_retention=retention, max_tokens=16384)
    assert bundle.build.max_num_tokens == 2048
    assert tails_per_step(config.retention, 2048) == tails
    found = replace(plan_for_device(bundle, config, "cpu"), layout=bundle.layout.trunk)
    check_plan(found, 16384, tails)
    assert all(found.num_pages[b] >= pages for b, pages in least(bundle, tails).items())


def test_ranks_share_the_memory_of_a_cpu(built, monkeypatch):
    monkeypatch.setattr(pool_plan, "_available_memory", lambda: 10 * GIB)
    assert free_bytes(built, "cpu") == 10 * GIB
    object.__setattr__(built, "mapping", Mapping(tp_size=2))
    assert free_bytes(built, "cpu") == 5 * GIB


def test_a_gpu_has_what_the_weights_leave(built, monkeypatch):
    tensors = rank_tensors(built.spec, built.mapping, mtp=built.mtp is not None)
    weights = sum(tensor.nbytes for tensor in tensors)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (weights + GIB, 4 * GIB))
    assert free_bytes(built, "cuda") == GIB
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (weights, 4 * GIB))
    with pytest.raises(CapacityError, match=r"the weights of .* take .* free; end what else runs"):
        free_bytes(built, "cuda")


def test_available_memory_is_real():
    assert 1 << 20 < pool_plan._available_memory() < 1 << 50


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((65, None, None), "max_batch_size is 65, the engine was built for 64"),
        ((None, 2049, None), "max_num_tokens is 2049, the engine was built for 2048"),
        ((None, None, 32769), "max_seq_len is 32769, the engine was built for 32768"),
        ((0, None, None), "max_batch_size is 0; expected a whole number"),
        ((None, 1.5, None), "max_num_tokens is 1.5"),
        ((None, 63, None), "max_num_tokens 63 is below max_batch_size 64"),
    ],
)
def test_sizes_are_limits_of_what_was_built(built, sizes, message):
    with pytest.raises(ConfigError, match=message):
        limit_sizes(built, *sizes)
    assert limit_sizes(built, None, None, None) == built
