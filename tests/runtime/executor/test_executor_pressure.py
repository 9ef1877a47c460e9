"""Too little room: priorities, preemption by recompute and forks change when, never what."""

import numpy as np
import pytest

from dsv4_trt.kv_layout import Bucket
from dsv4_trt.kv_plan import KvPlan
from tests.runtime.executor.fake_engine import FakeEngine
from tests.runtime.executor.serving import Serving, check_invariants, prompt, request


def engine_with(large, middle, small):
    """An engine with few pages of a size; a longest sequence still fits."""
    layout = FakeEngine().layout
    least = layout.peak_pages_per_sequence(1024)
    pages = {Bucket.LARGE: large, Bucket.MIDDLE: middle, Bucket.SMALL: small}
    pages = {bucket: max(pages[bucket], least[bucket]) for bucket in Bucket}
    return FakeEngine(plan=KvPlan(layout=layout, num_pages=pages))


@pytest.mark.parametrize("retention", ["newest", "every", None])
@pytest.mark.parametrize("pages", [(150, 999, 999), (999, 20, 999), (999, 999, 5)])
def test_small_pools_equal_large_ones(pages, retention):
    """Outputs outgrow one pool or another: who is preempted says the same when recomputed."""
    serving = Serving(engine_with(*pages), tokens=70, retention=retention)
    requests = [
        request(f"{n}", prompt(2 + n, n), max_tokens=270, temperature=n % 2, seed=n)
        for n in range(8)
    ]
    serving.finish(*requests, check=True).check_outputs()
    assert serving.executor.metrics.preemptions > 0
    serving.check_no_leak()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("retention", ["newest", "every", None])
def test_preempted_at_random_points_equals_undisturbed(seed, retention):
    """Whoever, whenever: in the prompt, in the output, right after a fork, again and again."""
    random = np.random.default_rng(seed)
    serving = Serving(tokens=64, retention=retention)
    for n, length in enumerate((3, 130, 300, 520, 700)):
        params = {"n": 1 + n % 3, "temperature": 1.0, "seed": n, "max_tokens": 60}
        serving.submit(request(f"{n}", prompt(length, n), **params))
    count = 0
    while serving.executor.has_work:
        serving.step()
        running = [*serving.scheduler.running]
        if running and random.random() < 0.15 and count < 25:
            serving.scheduler.preempt(running[random.integers(len(running))])
            count += 1
            check_invariants(serving.executor)
    assert count > 10
    serving.check_outputs()
    serving.check_no_leak()


def test_a_higher_priority_takes_a_row():
    serving = Serving(seqs=2)
    low = [request(f"low{n}", prompt(9), max_tokens=50, priority=0.1 * n) for n in range(2)]
    serving.submit(*low)
    serving.step(3)
    serving.submit(request("high", prompt(9), max_tokens=5, priority=1))
    serving.step()
    assert len(serving.tokens["high", 0]) == 1
    assert [s.request.request_id for s in serving.scheduler.waiting] == ["low0"]
    serving.finish().check_outputs()
    assert serving.executor.metrics.preemptions == 1


def test_an_equal_priority_waits_for_a_row():
    serving = Serving(seqs=1)
    serving.submit(request("a", prompt(9)), request("b", prompt(9)))
    serving.step(3)
    assert len(serving.tokens["a", 0]) == 3
    serving.finish().check_outputs()
    assert serving.executor.metrics.preemptions == 0


def test_a_higher_priority_takes_pages():
    """As many as it needs: the lowest and newest go first, the others stay."""
    serving = Serving(FakeEngine((1024,) * 2))
    low = [request(f"{n}", prompt(400, n), max_tokens=500, priority=0.5 - n / 10) for n in range(4)]
    serving.submit(*low)
    serving.step(5)
    running = serving.scheduler.num_running
    serving.submit(request("high", prompt(500, 9), priority=1))
    serving.step(2)
    assert len(serving.tokens["high", 0]) > 0
    assert 0 < serving.executor.metrics.preemptions < running
    serving.finish().check_outputs()


@pytest.mark.parametrize("large", [70, 90, 130, 170])
@pytest.mark.parametrize("steps", [1, 5, 20])
def test_a_higher_priority_does_not_wait_for_what_lower_ones_will_take(large, steps):
    """Whatever keeps it from being admitted keeps lower ones from running on."""
    serving = Serving(engine_with(large, 999, 999))
    serving.submit(
        *(request(f"{n}", prompt(3 + n, n), max_tokens=90, priority=0) for n in range(8))
    )
    serving.step(steps)
    serving.submit(request("high", prompt(100, 9), max_tokens=2, priority=1))
    serving.step()
    assert len(serving.tokens["high", 0]) == 1
    serving.finish().check_outputs()


def test_nobody_is_preempted_for_what_does_not_fit_anyway():
    """What those of its own priority hold is missing even if all below it go."""
    serving = Serving(FakeEngine((1024,)), seqs=8)
    serving.submit(request("peer", prompt(700, 1), max_tokens=300, priority=1))
    serving.step(3)
    serving.submit(request("low", prompt(3, 2), max_tokens=300, priority=0))
    serving.step(3)
    assert serving.scheduler.num_running == 2
    serving.submit(request("high", prompt(900, 3), max_tokens=100, priority=1))
    serving.step(20)
    assert serving.executor.metrics.preemptions == 0
    assert not serving.tokens["high", 0]
    serving.finish().check_outputs()


def test_a_burst_runs_as_many_as_come_one_by_one():
    """What a step is about to take is counted once, so that nobody waits for pages that are there."""
    most = []
    for burst in (True, False):
        serving = Serving(engine_with(999, 20, 999), tokens=70)
        left = [request(f"{n}", prompt(2 + n, n), max_tokens=60) for n in range(8)]
        running = []
        while left or serving.executor.has_work:
            for _ in range(len(left) if burst else min(1, len(left))):
                serving.submit(left.pop(0))
            serving.step()
            running.append(serving.scheduler.num_running)
        serving.check_outputs()
        most.append(max(running))
    assert most == [4, 4]


def n_request(length, **params):
    return request("n", prompt(length), temperature=1.0, seed=5, **{"max_tokens": 30, **params})


@pytest.mark.parametrize("length", [1, 2, 4, 8, 63, 127, 128, 255, 256, 257, 512, 700])
@pytest.mark.parametrize("retention", ["newest", "every", None])
def test_forks_at_any_alignment(length, retention):
    serving = Serving(retention=retention)
    serving.finish(n_request(length, n=4), check=True).check_outputs()
    outputs = {tuple(serving.tokens["n", i]) for i in range(4)}
    assert len(outputs) == 4
    serving.check_no_leak()


def test_forks_share_what_is_complete():
    serving = Serving()
    serving.submit(n_request(700, n=4))
    serving.step(3)
    assert serving.scheduler.num_running == 4
    pool = serving.executor.stepper.pools[Bucket.LARGE]
    alone = sum(
        kv.pages_for(702) * len(kv.layers)
        for kv in serving.engine.layout.classes.values()
        if kv.bucket is Bucket.LARGE
    )
    assert pool.num_held < 4 * alone - 3 * 2  # at least the blocks of 512 tokens are one
    serving.finish().check_outputs()
    assert serving.executor.metrics.prompt_tokens == 700


@pytest.mark.parametrize("seqs", [1, 2, 3])
def test_forks_without_rows_wait(seqs):
    serving = Serving(seqs=seqs)
    serving.finish(n_request(300, n=5), request("other", prompt(9)), check=True).check_outputs()
    serving.check_no_leak()


@pytest.mark.parametrize("lens", [(1024,), (1024, 500)])
def test_forks_without_pages_wait(lens):
    serving = Serving(FakeEngine(lens))
    serving.submit(n_request(900, n=6, max_tokens=100))
    running = set()
    while serving.executor.has_work:
        serving.step()
        running.add(serving.scheduler.num_running)
        check_invariants(serving.executor)
    assert max(running) < 6
    serving.check_outputs()
    serving.check_no_leak()


@pytest.mark.parametrize("steps", [2, 5, 11])
def test_forks_end_at_different_times_and_the_last_ends_the_request(steps):
    serving = Serving(seqs=3)
    serving.submit(n_request(200, n=5, max_tokens=60, stop_token_ids=tuple(range(2, 9))))
    serving.step(steps)
    ended = len(serving.reasons)
    assert serving.terminal["n"] == 0
    serving.finish(request("b", prompt(30)), check=True).check_outputs()
    lengths = {len(serving.tokens["n", i]) for i in range(5)}
    assert len(lengths) > 2, f"{ended} ended after {steps} steps"
    assert [u.finished for u in serving.updates if u.request_id == "n"].count(True) == 1


@pytest.mark.parametrize("steps", [3, 6, 20])
def test_cancel_ends_all_forks_running_or_not(steps):
    serving = Serving(seqs=3, tokens=128)
    serving.submit(n_request(300, n=5, max_tokens=40))
    serving.step(steps)
    serving.executor.cancel("n")
    serving.step()
    assert len(serving.reasons) == 5
    serving.check_outputs(cut=["n"])
    serving.check_no_leak()


@pytest.mark.parametrize("tokens", [257, 300, 512])
def test_prompts_half_way_do_not_starve_each_other(tokens):
    """While one decodes, later prompts wait for their whole room, and the first is as fast as alone."""

    def steps_to_first_token(names):
        serving = Serving(FakeEngine((1024, 300)), tokens=tokens)
        serving.submit(request("long", prompt(3), max_tokens=400))
        serving.step(3)
        serving.submit(*(request(name, prompt(900, seed)) for seed, name in enumerate(names)))
        count = 0
        while not serving.tokens[names[0], 0]:
            serving.step()
            count += 1
        serving.finish()
        serving.check_outputs()
        return count

    assert steps_to_first_token(["b", "c", "d"]) == steps_to_first_token(["b"])


def test_a_prompt_half_way_takes_the_place_of_later_decodes():
    serving = Serving(FakeEngine((1024, 300)), tokens=257)
    serving.submit(
        *(request(f"low{n}", prompt(40, n), priority=0, max_tokens=400) for n in range(4))
    )
    serving.step(8)
    serving.submit(request("high", prompt(900), priority=1))
    count = 0
    while not serving.tokens["high", 0]:
        serving.step()
        count += 1
    assert count <= 8  # 900 tokens in chunks of a logical block, and one step to make way
    serving.finish()
    serving.check_outputs()
