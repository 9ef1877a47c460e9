"""Several sequences generated in turn on one engine, and what is left of one that is abandoned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dsv4_trt.errors import EngineFault, RequestError
from dsv4_trt.runtime.generate import generate
from dsv4_trt.runtime.sampler import Sampler
from dsv4_trt.runtime.sampling_params import SamplingParams
from dsv4_trt.runtime.stepper import Stepper
from tests.workshop import random_ids

PARAMS = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)
PROMPTS = [random_ids(n, seed=n) for n in (3, 40, 150)]


@pytest.fixture
def stepper(workshop, tiny_a):
    return Stepper(workshop.engine(tiny_a))


def free_pages(stepper):
    return {bucket: pool.num_free for bucket, pool in stepper.kv.pools.items()}


def test_sequences_in_turn_equal_sequences_alone(stepper):
    alone = [[t.token.token_id for t in generate(stepper, ids, PARAMS)] for ids in PROMPTS]
    running = [generate(stepper, ids, PARAMS) for ids in PROMPTS]
    turns = list(zip(*running, strict=True))
    assert [[t.token.token_id for t in tokens] for tokens in zip(*turns, strict=True)] == alone
    assert [t.finish_reason for t in turns[-1]] == ["length"] * 3


def test_a_sequence_gives_its_pages_back_however_it_ends(stepper):
    before = free_pages(stepper)
    abandoned = generate(stepper, PROMPTS[2], PARAMS)
    next(abandoned)
    assert free_pages(stepper) != before
    abandoned.close()
    assert free_pages(stepper) == before
    list(generate(stepper, PROMPTS[2], PARAMS))
    assert free_pages(stepper) == before


def test_an_illegal_request_takes_no_page(stepper):
    before = free_pages(stepper)
    with pytest.raises(RequestError, match="no tokens"):
        next(generate(stepper, [], PARAMS))
    assert free_pages(stepper) == before


def test_a_request_for_several_sequences_is_refused(stepper):
    with pytest.raises(RequestError, match="n is 2"):
        next(generate(stepper, PROMPTS[0], replace(PARAMS, n=2)))


def test_a_row_without_a_token_raises_and_gives_its_pages_back(stepper, monkeypatch):
    before = free_pages(stepper)
    monkeypatch.setattr(Sampler, "sample", lambda *_: [EngineFault("row 0 is NaN")])
    with pytest.raises(EngineFault, match="row 0 is NaN"):
        next(generate(stepper, PROMPTS[0], PARAMS))
    assert free_pages(stepper) == before
