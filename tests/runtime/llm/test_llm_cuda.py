"""`LLM` on a GPU: the same tokens as on the CPU, pools from what the weights leave free."""

import pytest
import torch

from dsv4_trt.runtime.llm import KvCacheConfig
from tests.runtime.llm.llms import greedy, open_llm
from tests.workshop import random_ids

pytestmark = pytest.mark.gpu

PROMPTS = [random_ids(n, seed=n) for n in (3, 40, 300)]


def test_tokens_are_those_of_the_cpu(workshop, tiny_a):
    config = KvCacheConfig(max_tokens=8192)
    found = {}
    for device in ("cpu", "cuda"):
        with open_llm(workshop, tiny_a, device=device, kv_cache_config=config) as llm:
            cold, warm = (llm.generate(PROMPTS, greedy(4)) for _ in range(2))
        found[device] = [request.outputs[0].token_ids for request in (*cold, *warm)]
        assert [request.cached_tokens for request in warm] == [0, 0, 256]
    assert found["cuda"] == found["cpu"]


def test_pools_take_their_part_of_what_is_free(workshop, tiny_a):
    from dsv4_trt.runtime.cuda.footprint import footprint, native_arena_bytes
    from dsv4_trt.runtime.cuda.open import device_library

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    free, _ = torch.cuda.mem_get_info()
    config = KvCacheConfig(free_gpu_memory_fraction=0.05)
    with open_llm(workshop, tiny_a, device="cuda", kv_cache_config=config) as llm:
        weights = max(file.stat().st_size for file in llm.bundle.rank_files)
        steps = footprint(llm.bundle, native_arena_bytes(llm.bundle, device_library(), 1), 1)
        # other tests may run on the same GPU
        assert llm.kv_plan.total_bytes == pytest.approx(0.05 * (free - weights - steps), rel=0.2)
        llm.generate(random_ids(1000, seed=1), greedy(2))
        taken = torch.cuda.max_memory_allocated() - before
        assert llm.kv_plan.total_bytes < taken < llm.kv_plan.total_bytes + weights + steps
