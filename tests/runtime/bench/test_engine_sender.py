"""The load tool on a real, tiny engine."""

import asyncio

import pytest

from dsv4_trt.errors import ConfigError, RequestError
from dsv4_trt.runtime.bench.ask import Ask
from dsv4_trt.runtime.bench.engine_asks import dataset_asks, random_engine_asks
from dsv4_trt.runtime.bench.engine_sender import EngineSender, TimedLLM
from dsv4_trt.runtime.bench.load import Load, Run
from dsv4_trt.runtime.bench.random_asks import Lengths
from dsv4_trt.runtime.bench.report import report_of
from dsv4_trt.runtime.bundle import open_bundle
from tests.runtime.llm.llms import BUILD


@pytest.fixture(scope="module")
def bundle(workshop, tiny_a):
    return open_bundle(workshop.bundle_dir(tiny_a, build=BUILD), precision="exact")


@pytest.fixture(scope="module")
def llm(bundle):
    with TimedLLM(bundle, device="cpu", max_batch_size=4, max_queue_size=8) as llm:
        yield llm


def go(llm, asks, *, cancel_after=None, **load):
    run = Run(
        Load(num_requests=len(asks), **load), asks, lambda: EngineSender(llm, ignore_eos=True)
    )

    async def limited():
        task = asyncio.create_task(run.go())
        await asyncio.wait({task}, timeout=cancel_after)
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(limited() if cancel_after else run.go())
    return run


def test_every_token_and_every_step_is_seen(llm, bundle):
    asks = random_engine_asks(bundle, Lengths(input_len=20, output_len=6), 9, 0)
    before = llm.metrics["steps"]
    times = llm.time_steps()
    run = go(llm, asks, concurrency=3)
    assert [record.error for record in run.records] == [None] * 9
    assert all(r.counts.tolist() == [1] * 6 and r.finish_reason == "length" for r in run.records)
    assert len(times) == llm.metrics["steps"] - before >= 18
    assert all(seconds > 0 for seconds in times)
    assert sum(times) <= run.seconds
    report = report_of(run.records, run.seconds, {})
    assert (report["total_input_tokens"], report["total_output_tokens"]) == (180, 54)
    assert report["unchecked"] == 0


def test_new_times_begin_anew(llm, bundle):
    asks = random_engine_asks(bundle, Lengths(input_len=3, output_len=2), 1, 0)
    first = llm.time_steps()
    go(llm, asks, concurrency=1)
    second = llm.time_steps()
    assert (len(first) >= 2, len(second)) == (True, 0)


def test_a_full_queue_is_a_failure_of_its_kind(llm, bundle):
    asks = random_engine_asks(bundle, Lengths(input_len=3, output_len=3), 30, 0)
    run = go(llm, asks, concurrency=30)
    kinds = {record.error for record in run.records}
    assert kinds == {None, "queue full"}
    assert all(record.ended is not None for record in run.records)


def test_a_cancelled_load_leaves_the_engine_idle(llm, bundle):
    asks = random_engine_asks(bundle, Lengths(input_len=3, output_len=900), 4, 0)
    run = go(llm, asks, concurrency=4, cancel_after=0.3)
    assert {record.error for record in run.records} == {"cancelled"}
    probe = go(
        llm, random_engine_asks(bundle, Lengths(input_len=3, output_len=1), 1, 0), concurrency=1
    )
    assert probe.records[0].error is None
    assert llm.metrics["running"] == 0


def test_prompts_are_checked_against_the_engine(bundle, tmp_path):
    with pytest.raises(RequestError, match="max_seq_len 1024"):
        random_engine_asks(bundle, Lengths(input_len=1000, output_len=25), 1, 0)
    path = tmp_path / "d.jsonl"
    path.write_text('{"prompt": [3, 4], "max_tokens": 2}\n')
    assert dataset_asks(bundle, path, None, 2, 0) == [Ask(token_ids=[3, 4], max_tokens=2)] * 2
    for line, kind, message in (
        ('{"prompt": [600], "max_tokens": 2}', RequestError, "token id 600"),
        ('{"prompt": "text", "max_tokens": 2}', ConfigError, "no tokenizer.json"),
        ('{"messages": [{}], "max_tokens": 2}', ConfigError, "bench serve"),
    ):
        path.write_text(line)
        with pytest.raises(kind, match=message):
            dataset_asks(bundle, path, None, 1, 0)
