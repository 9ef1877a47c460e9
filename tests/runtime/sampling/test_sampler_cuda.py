"""The sampler on a GPU draws what it draws on the CPU."""

from __future__ import annotations

import math

import pytest
import torch

from dsv4_trt.errors import EngineFault
from dsv4_trt.plugins.reference.sampling import running_sums
from dsv4_trt.runtime.sampling.row_state import RowState
from dsv4_trt.runtime.sampling.sampler import Sampler
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from tests.plugins.cuda.cuda_call import kernels

VOCAB = 129280
PARAMS = {
    "greedy": {"temperature": 0},
    "plain": {},
    "filtered": {"temperature": 0.8, "top_k": 400, "top_p": 0.9, "min_p": 0.001},
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.2},
    "logprobs": {"logit_bias": {7: 5.0}, "min_tokens": 9, "logprobs": 5},
}


def rows(count, params):
    return [
        RowState(
            name=f"r{seed}",
            params=SamplingParams(seed=seed, **params),
            eos_token_id=1,
            prompt_ids=range(seed, 9000, 7),
            output_ids=[seed, 5, 5],
        )
        for seed in range(count)
    ]


@pytest.mark.gpu
@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_tokens_and_logprobs_are_those_of_the_cpu(params):
    logits = torch.randn(32, VOCAB, generator=torch.Generator().manual_seed(0)) * 3
    logits[:, 20:24] = logits.amax(dim=-1, keepdim=True)  # ties at the top
    expected = Sampler(VOCAB).sample(logits, rows(32, params))
    found = Sampler(VOCAB, kernels()["sample"]).sample(logits.cuda(), rows(32, params))
    assert [t.token_id for t in found] == [t.token_id for t in expected]
    for here, there in zip(found, expected, strict=True):
        assert here.logprob == pytest.approx(there.logprob, abs=1e-4)
        assert [token for token, _ in here.top] == [token for token, _ in there.top]


@pytest.mark.gpu
def test_a_nan_is_found_on_the_gpu():
    logits = torch.zeros(2, VOCAB, device="cuda")
    logits[1, VOCAB - 1] = math.nan
    good, error = Sampler(VOCAB, kernels()["sample"]).sample(logits, rows(2, {"temperature": 0}))
    assert good.token_id == 0
    assert isinstance(error, EngineFault)
    assert "row 1" in str(error)


@pytest.mark.gpu
def test_running_sums_do_not_depend_on_the_number_of_rows():
    weights = torch.rand(64, VOCAB, generator=torch.Generator().manual_seed(0)).cuda()
    whole = running_sums(weights)
    for start, end in ((0, 1), (7, 8), (63, 64), (0, 2), (5, 22)):
        assert torch.equal(running_sums(weights[start:end]), whole[start:end])
