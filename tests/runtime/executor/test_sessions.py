"""Twenty conversations of 30,000 tokens in pools for 25: their second turns find their first ones."""

from dataclasses import replace

import numpy as np
import pytest

from dsv4_trt.contract import BuildSpec
from dsv4_trt.kv_layout import solve
from dsv4_trt.kv_mix import Load
from dsv4_trt.kv_plan import plan_for_sequences, plan_pools
from dsv4_trt.presets import FLASH
from tests.runtime.executor.fake_engine import VOCAB, FakeEngine
from tests.runtime.executor.serving import Serving, prompt, request

SPEC = replace(FLASH, vocab_size=VOCAB)
BUILD = BuildSpec(max_batch_size=25, max_num_tokens=8192, max_seq_len=32768, mtp=False)
SESSIONS, TOKENS = 20, 30_000


def pools(kind):
    """Pools for 25 such sequences: at their most, or within the memory that they hold on average."""
    layout = solve(SPEC, "fp8", "fp4")
    plan = plan_for_sequences(layout, [TOKENS] * 25)
    if kind == "most":
        return plan
    memory = 25 * sum(
        n * layout.page_bytes[b] for b, n in layout.pages_per_sequence(TOKENS).items()
    )
    return plan_pools(layout, memory, [Load(25, TOKENS)], max_seq_len=BUILD.max_seq_len)


@pytest.mark.parametrize(
    ("kind", "retention"), [("most", "newest"), ("most", 16), ("mean", "newest")]
)
def test_second_turns_hit(kind, retention):
    engine = FakeEngine(spec=SPEC, build=BUILD, plan=pools(kind))
    serving = Serving(engine, seqs=25, tokens=8192, retention=retention)
    random = np.random.default_rng(0)
    first = [
        request(f"{n}-1", prompt(TOKENS - int(random.integers(300)), n), max_tokens=100)
        for n in range(SESSIONS)
    ]
    serving.finish(*first)
    second = [
        request(
            f"{n}-2",
            one.prompt_ids + serving.tokens[f"{n}-1", 0] + prompt(200 + 17 * n, n + 99),
            max_tokens=50,
        )
        for n, one in enumerate(first)
    ]
    serving.finish(*second)
    serving.check_outputs()
    asked = sum(len(one.prompt_ids) for one in second)
    found = sum(serving.num_cached[one.request_id, 0] for one in second)
    assert found / asked > 0.85
    assert all(serving.num_cached[one.request_id, 0] == 0 for one in first)
    assert serving.executor.metrics.cached_tokens == found
    serving.check_no_leak()
