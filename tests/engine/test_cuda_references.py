"""The references on a GPU: the same ops, the same numbers as on the CPU."""

import pytest
import torch

from dsv4_trt.errors import ConfigError
from tests.workshop import logits, random_ids


@pytest.mark.gpu
@pytest.mark.parametrize("length", [3, 129, 257])
def test_exact_logits_equal_the_cpu(workshop, tiny_a, length):
    ids = random_ids(length + 4, seed=length)
    found, expected = (
        logits(
            workshop.engine(tiny_a, device=device),
            ids[:length],
            decode=ids[length:],
            chunk=100,
            mtp=True,
        )
        for device in ("cuda", "cpu")
    )
    for key, rows in expected.items():
        torch.testing.assert_close(found[key].cpu(), rows, atol=1e-4, rtol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("indexer", ["fp4", "fp8", "bf16"])
def test_serving_logits_are_close_to_the_cpu(workshop, tiny_a, indexer):
    """One rounding difference flips a quantization step, so this shows gross errors only."""
    build = ("--indexer_cache_dtype", indexer)
    ids = random_ids(150, seed=2)
    found, expected = (
        logits(workshop.engine(tiny_a, precision="serving", build=build, device=device), ids)[
            "prefill"
        ].cpu()
        for device in ("cuda", "cpu")
    )
    relative = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert relative.mean() < 0.15


@pytest.mark.gpu
def test_several_ranks_on_a_gpu_are_refused(workshop, tiny_a):
    with pytest.raises(ConfigError, match=r"2 ranks.*--device cpu"):
        workshop.engine(tiny_a, tp=2, ep=2, device="cuda")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is present")
def test_a_missing_gpu_is_said_clearly(workshop, tiny_a):
    with pytest.raises(ConfigError, match=r"no CUDA device.*--device cpu"):
        workshop.engine(tiny_a, device="cuda")
