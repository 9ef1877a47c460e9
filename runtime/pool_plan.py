"""Pools for a bundle on a device: how much memory there is, and how the KV cache's pools share it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import ceil

from dsv4_trt.errors import CapacityError
from dsv4_trt.kv_layout import Bucket, KvLayout
from dsv4_trt.kv_mix import Load, mean_pages
from dsv4_trt.kv_plan import KvPlan, plan_pools, size_text
from dsv4_trt.rank_tensors import rank_tensors
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.kv.retention import tails_per_step
from dsv4_trt.runtime.kv_cache_config import KvCacheConfig


def plan_for_device(bundle: Bundle, config: KvCacheConfig, device: str) -> KvPlan:
    """Pools of one rank as `KvCacheConfig` says, for the trunk: the executor drafts no tokens.

    `device` is "cpu" or "cuda".

    Raises:
        CapacityError: one sequence of `max_seq_len` does not fit; names the largest that does.
        ConfigError: a mix with sequences above `max_seq_len`.
    """
    build, layout, on_gpu = bundle.build, bundle.layout.trunk, device == "cuda"
    loads = config.mix(build.max_seq_len, build.max_batch_size, on_gpu=on_gpu)
    fixed = config.overrides
    tails = tails_per_step(config.retention, min(build.max_num_tokens, build.max_seq_len))
    least = layout.peak_pages_per_sequence(build.max_seq_len, tails)
    free = free_bytes(bundle, device)
    if on_gpu:
        free -= _step_bytes(bundle, tails, free)
    budget = int(free * config.free_gpu_memory_fraction)
    if config.max_gpu_total_bytes is not None:
        budget = min(budget, config.max_gpu_total_bytes)
    if config.max_tokens is not None:
        _check_max_tokens(config.max_tokens, build.max_seq_len)
        share = config.max_tokens / sum(load.count * load.length for load in loads)
        budget = min(budget, _bytes_for(layout, loads, share, least, fixed))
    elif not on_gpu:
        budget = min(budget, _bytes_for(layout, loads, 1, least, fixed))
    plan = plan_pools(
        layout, budget, loads, max_seq_len=build.max_seq_len, tails=tails, overrides=fixed
    )
    return KvPlan(layout=bundle.layout, num_pages=plan.num_pages)


def free_bytes(bundle: Bundle, device: str) -> int:
    """Memory of one rank without the KV cache.

    On a GPU what is free now, less the weights, which are not there yet. On a CPU, where weights stay
    mapped from their files and ranks share the memory, what Linux says is available. Raises
    `CapacityError` if the weights leave nothing.
    """
    if device == "cpu":
        return _available_memory() // bundle.mapping.world_size
    import torch

    free, _ = torch.cuda.mem_get_info()
    weights = _weight_bytes(bundle)
    if weights >= free:
        raise CapacityError(
            f"the weights of {bundle.path} take {size_text(weights)}, the GPU has {size_text(free)} "
            "free; end what else runs on it, or convert for more ranks with --tp_size"
        )
    return free - weights


def _step_bytes(bundle: Bundle, tails: int, free: int) -> int:
    """What the largest step takes on the GPU; raises `CapacityError` if it is more than is `free`."""
    from dsv4_trt.runtime.cuda.footprint import footprint

    found = footprint(bundle, _arena_bytes(bundle, tails), tails)
    if found >= free:
        raise CapacityError(
            f"steps of max_num_tokens {bundle.build.max_num_tokens} take {size_text(found)} of the GPU, "
            f"{size_text(free)} are free besides the weights; build with a smaller --max_num_tokens"
        )
    return found


def _arena_bytes(bundle: Bundle, tails: int) -> int:
    """Activations and workspaces of the largest step: of plans TensorRT says it, others are laid out."""
    if bundle.record is not None:
        from dsv4_trt.runtime.tensorrt.open import plan_arena_bytes

        return plan_arena_bytes(bundle)
    from dsv4_trt.runtime.cuda.footprint import native_arena_bytes
    from dsv4_trt.runtime.cuda.open import device_library

    return native_arena_bytes(bundle, device_library(), tails)


def _weight_bytes(bundle: Bundle) -> int:
    """Of one rank on the device."""
    mtp = bundle.mtp is not None
    return sum(tensor.nbytes for tensor in rank_tensors(bundle.spec, bundle.mapping, mtp=mtp))


def _available_memory() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = dict(line.split(":") for line in file)
        return int(found["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):  # a sandbox without /proc: less exact, caches count as taken
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _check_max_tokens(max_tokens: int, max_seq_len: int) -> None:
    if max_tokens < max_seq_len:
        raise CapacityError(
            f"max_tokens of the KV cache is {max_tokens:,}, one sequence of max_seq_len "
            f"{max_seq_len:,} does not fit; the largest max_seq_len that fits is {max_tokens}"
        )


def _bytes_for(
    layout: KvLayout,
    loads: Sequence[Load],
    share: float,
    least: dict[Bucket, int],
    fixed: dict[Bucket, int],
) -> int:
    """Bytes of pools that hold a share of a mix at rest, and at least one sequence in any step."""
    mean = mean_pages(layout, loads)
    pages = {b: max(ceil(mean[b] * share), least[b]) for b in Bucket} | fixed
    return sum(count * layout.page_bytes[bucket] for bucket, count in pages.items())
