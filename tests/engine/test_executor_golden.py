"""The golden model behind the executor: company, chunks, hits and preemption change no token.

Exact precision, greedy. Expected is what each request gets alone, without a prefix cache, in one chunk.
"""

import numpy as np
import pytest

from dsv4_trt.runtime.executor import Executor
from dsv4_trt.runtime.executor_config import ExecutorConfig
from dsv4_trt.runtime.kv.retention import Retention
from dsv4_trt.runtime.request import Request
from dsv4_trt.runtime.sampling.sampler import Sampler
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from tests.workshop import random_ids

LIMIT = 1e-4  # of logprobs
OUTPUT = 4


class Golden:
    """An executor on the golden model; `tokens`, `logprobs` and `num_cached` are by request id."""

    def __init__(self, engine, *, tokens=2048, seqs=8, retention="newest"):
        policy = None if retention is None else Retention.parse(retention)
        config = ExecutorConfig(max_num_seqs=seqs, max_num_tokens=tokens, retention=policy)
        self.executor = Executor(engine, Sampler(engine.spec.vocab_size), config)
        self.tokens, self.logprobs, self.num_cached = {}, {}, {}

    def submit(self, name, prompt_ids):
        params = SamplingParams(max_tokens=OUTPUT, temperature=0, ignore_eos=True)
        self.executor.submit(Request(request_id=name, prompt_ids=prompt_ids, params=params))
        self.tokens[name], self.logprobs[name] = [], []

    def step(self):
        for update in self.executor.step():
            assert update.error is None, update.error
            if update.token is not None:
                self.tokens[update.request_id].append(update.token.token_id)
                self.logprobs[update.request_id].append(update.token.logprob)
            self.num_cached[update.request_id] = update.num_cached

    def run(self, prompts):
        for name, ids in prompts.items():
            self.submit(name, ids)
        while self.executor.has_work:
            self.step()
        return self

    def check(self, expected):
        """Tokens are equal and log-probabilities close for all requests in `expected`."""
        for name, (tokens, logprobs) in expected.items():
            assert self.tokens[name] == tokens, name
            np.testing.assert_allclose(self.logprobs[name], logprobs, atol=LIMIT, rtol=0)


@pytest.fixture(scope="module")
def engine(workshop, tiny_a):
    return workshop.engine(tiny_a, build=("--max_seq_len", "1024"), lens=(900, 900, 900))


@pytest.fixture(scope="module")
def alone(engine):
    """What prompts get alone, kept for the tests of this file."""
    known = {}

    def find(prompts):
        for ids in prompts.values():
            if tuple(ids) not in known:
                one = Golden(engine, retention=None).run({"one": ids})
                known[tuple(ids)] = one.tokens["one"], one.logprobs["one"]
        return {name: known[tuple(ids)] for name, ids in prompts.items()}

    return find


PROMPTS = {f"{n}": random_ids(n, seed=n) for n in (5, 130, 256, 300, 520)}


@pytest.mark.parametrize(("tokens", "retention"), [(600, "newest"), (96, "every")])
def test_a_ragged_batch_under_chunking_equals_single_runs(engine, alone, tokens, retention):
    expected = alone(PROMPTS)
    Golden(engine, tokens=tokens, retention=retention).run(PROMPTS).check(expected)


@pytest.mark.parametrize("own", [1, 3, 4, 9])
@pytest.mark.parametrize("hit", [256, 512])
def test_warm_equals_cold(engine, alone, hit, own):
    shared = random_ids(600, seed=600)[:hit]
    warm = {"warm": shared + random_ids(own, seed=own)}
    expected = alone(warm)
    golden = Golden(engine).run({"first": shared + random_ids(30, seed=31)}).run(warm)
    assert golden.num_cached["warm"] == hit
    golden.check(expected)


@pytest.mark.parametrize("retention", ["newest", None])
def test_preempted_at_random_points_equals_undisturbed(engine, alone, retention):
    expected, random = alone(PROMPTS), np.random.default_rng(0)
    golden = Golden(engine, tokens=200, retention=retention)
    for name, ids in PROMPTS.items():
        golden.submit(name, ids)
    count = 0
    while golden.executor.has_work:
        golden.step()
        running = golden.executor.scheduler.running
        if running and count < 8 and random.random() < 0.6:
            golden.executor.scheduler.preempt(running[random.integers(len(running))])
            count += 1
    assert count > 3
    golden.check(expected)


def test_interleaved_sessions_with_an_edited_turn_equal_sequential_runs(engine, alone):
    """Four conversations side by side: two turns, then another version of the second."""
    begins = {f"{n}": random_ids(245 + 10 * n, seed=70 + n) for n in range(4)}
    golden = Golden(engine, tokens=256, seqs=3).run({f"{n}-1": ids for n, ids in begins.items()})
    history = {n: ids + golden.tokens[f"{n}-1"] for n, ids in begins.items()}
    second = {f"{n}-2": ids + random_ids(40, seed=80 + int(n)) for n, ids in history.items()}
    edited = {f"{n}-3": ids + random_ids(25, seed=90 + int(n)) for n, ids in history.items()}
    golden.run(second).run(edited)
    hits = [golden.num_cached[f"{n}-3"] for n in begins]
    assert hits == [0, 256, 256, 256]
    golden.check(alone(edited))
