"""What an executor refuses at the start, with the numbers and the largest value that fits."""

from dataclasses import replace

import pytest

from dsv4_trt.errors import CapacityError, ConfigError
from dsv4_trt.kv_layout import Bucket
from dsv4_trt.kv_plan import KvPlan, largest_sequence
from dsv4_trt.runtime.executor import Executor
from dsv4_trt.runtime.executor_config import ExecutorConfig
from dsv4_trt.runtime.kv.retention import Retention
from tests.runtime.executor.fake_engine import FakeEngine
from tests.runtime.executor.fake_reference import FakeSampler


def start(engine, **config):
    given = {"max_num_seqs": 4, "max_num_tokens": 256, **config}
    return Executor(engine, FakeSampler(), ExecutorConfig(**given))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"max_num_seqs": 10**6}, r"max_num_seqs is 1000000; expected 1 to \d+"),
        ({"max_num_seqs": 0}, "max_num_seqs is 0; expected 1 to"),
        ({"max_num_tokens": 10**6}, r"max_num_tokens is 1000000; expected 1 to \d+"),
        ({"max_num_tokens": 3}, "max_num_tokens 3 is below max_num_seqs 4"),
        ({"max_queue_size": 0}, "max_queue_size is 0; expected at least 1"),
    ],
)
def test_limits_that_the_engine_does_not_have(config, message):
    with pytest.raises(ConfigError, match=message):
        start(FakeEngine(), **config)


@pytest.mark.parametrize("short", list(Bucket))
def test_pools_that_do_not_hold_one_request_of_max_seq_len(short):
    engine = FakeEngine()
    pages = dict(engine.layout.peak_pages_per_sequence(engine.build.max_seq_len))
    start(FakeEngine(plan=KvPlan(layout=engine.layout, num_pages=pages)))
    pages[short] -= 1
    plan = KvPlan(layout=engine.layout, num_pages=pages)
    with pytest.raises(CapacityError, match="the largest max_seq_len that fits is") as refused:
        start(FakeEngine(plan=plan))
    largest = int(str(refused.value).split()[-1])
    assert largest == largest_sequence(plan)
    start(FakeEngine(plan=plan, build=replace(engine.build, max_seq_len=largest)))


def test_pools_that_do_not_hold_the_tails_of_one_chunk():
    engine = FakeEngine()
    pages = engine.layout.peak_pages_per_sequence(engine.build.max_seq_len)
    plan = KvPlan(layout=engine.layout, num_pages=pages)
    with pytest.raises(CapacityError, match="one sequence of max_seq_len"):
        start(FakeEngine(plan=plan), max_num_tokens=512, retention=Retention(1))


def test_pages_are_counted_before_the_first_step():
    engine = FakeEngine()
    pages = start(engine).metrics.pages
    assert {b: p.free for b, p in pages.items()} == dict(engine.plan.num_pages)
