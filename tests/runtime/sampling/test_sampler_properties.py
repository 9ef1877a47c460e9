"""What holds for any logits and any request: batch independence, seeds, mask, agreement of filters."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_trt.runtime.sampling.row_state import RowState
from dsv4_trt.runtime.sampling.sampler import Sampler
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams

VOCAB = 67
FLOATS = st.floats(-30, 30, width=32)

logit_rows = st.lists(FLOATS, min_size=VOCAB, max_size=VOCAB)
params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    top_p=st.sampled_from([1.0, 0.9, 0.2]),
    top_k=st.sampled_from([0, 1, 5, 500]),
    min_p=st.sampled_from([0.0, 0.1, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    presence_penalty=st.sampled_from([0.0, 1.0]),
    frequency_penalty=st.sampled_from([0.0, -0.5]),
    logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), FLOATS, max_size=3),
    seed=st.integers(0, 2**64 - 1),
    min_tokens=st.integers(0, 3),
    logprobs=st.sampled_from([None, 0, 4]),
)
masks = st.none() | st.sets(st.integers(2, VOCAB - 1), min_size=1)
tokens = st.lists(st.integers(0, VOCAB - 1), max_size=6)


@st.composite
def requests(draw):
    allowed = draw(masks)
    mask = None
    if allowed is not None:
        bits = np.zeros(96, np.uint8)
        bits[list(allowed)] = 1
        mask = np.packbits(bits, bitorder="little").view(np.int32)
    state = RowState(
        name="r",
        params=draw(params),
        eos_token_id=1,
        prompt_ids=draw(tokens),
        output_ids=draw(tokens),
        bitmask=mask,
    )
    return draw(logit_rows), state, allowed


def sample(batch):
    logits = torch.tensor([logits for logits, _, _ in batch], dtype=torch.float32)
    return Sampler(VOCAB).sample(logits, [state for _, state, _ in batch])


@given(st.lists(requests(), min_size=1, max_size=5), st.randoms())
@settings(max_examples=80, deadline=None)
def test_a_row_does_not_depend_on_its_batch(batch, random):
    alone = [sample([one])[0] for one in batch]
    assert sample(batch) == alone
    order = list(range(len(batch)))
    random.shuffle(order)
    assert sample([batch[i] for i in order]) == [alone[i] for i in order]


@given(requests())
@settings(max_examples=150, deadline=None)
def test_masked_tokens_are_never_chosen(request_):
    token = sample([request_])[0].token_id
    allowed = request_[2]
    assert allowed is None or token in allowed


@given(logit_rows, st.integers(0, 2**64 - 1), st.sampled_from(["temperature", "top_k", "min_p"]))
@settings(max_examples=80, deadline=None)
def test_greedy_by_any_name_is_argmax(logits, seed, how):
    fields = {"temperature": 0.0} if how == "temperature" else {how: 1, "seed": seed}
    state = RowState(
        name="r", params=SamplingParams(**fields), eos_token_id=1, prompt_ids=[], output_ids=[]
    )
    token = sample([(logits, state, None)])[0].token_id
    if how == "min_p":  # keeps every token as likely as the best
        assert logits[token] == max(logits)
    else:
        assert token == int(np.argmax(np.float32(logits)))


@given(logit_rows, st.integers(0, 2**64 - 1), st.sampled_from([0.05, 0.5, 0.95]))
@settings(max_examples=80, deadline=None)
def test_top_p_never_leaves_the_nucleus(logits, seed, top_p):
    params = SamplingParams(top_p=top_p, seed=seed)
    state = RowState(name="r", params=params, eos_token_id=1, prompt_ids=[], output_ids=[])
    token = sample([(logits, state, None)])[0].token_id
    share = torch.tensor(logits, dtype=torch.float64).softmax(-1)
    likelier = float(share[share > share[token]].sum())
    assert likelier < top_p + 1e-6


def test_without_a_seed_every_request_draws_its_own():
    seeds = {
        RowState(name="r", params=SamplingParams(), eos_token_id=1, prompt_ids=[]).seed
        for _ in range(20)
    }
    assert len(seeds) == 20
