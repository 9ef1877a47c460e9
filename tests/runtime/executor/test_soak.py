"""Twenty thousand requests through small pools: nothing leaks, nobody starves, nobody says anything else.

The longest wait is bounded because the queue is first come, first served. At most Q wait and R run when a
request comes; they end before it needs to begin. The pools are sized for P longest sequences, so as long
as anybody waits at least P run, and each ends within C steps for its prompt and O for its output:

    wait <= ceil((Q + R) / P) * (C + O)
"""

import numpy as np

from dsv4_trt.contract import BuildSpec
from dsv4_trt.errors import QueueFull
from tests.runtime.executor.fake_engine import FakeEngine
from tests.runtime.executor.serving import Serving, check_invariants, prompt, request

REQUESTS = 20_000
ROWS, QUEUE = 64, 64
BUILD = BuildSpec(max_batch_size=ROWS, max_num_tokens=1024, max_seq_len=512, mtp=False)
LONGEST_OUTPUT, LONGEST_PROMPT = 24, 400
PLACES, PROMPT_STEPS = 18, 8
MAX_WAIT = -(-(QUEUE + ROWS) // PLACES) * (PROMPT_STEPS + LONGEST_OUTPUT)


def requests(random):
    """Mostly short; some long, some with a beginning that others have, a few with two sequences."""
    shared = prompt(256, 1)
    for number in range(REQUESTS):
        length = int(random.integers(1, 60))
        if random.random() < 0.01:
            length = int(random.integers(250, LONGEST_PROMPT))
        ids = random.integers(2, 64, length).tolist()
        if random.random() < 0.02:
            ids = shared + ids[:100]
        yield request(
            f"{number}",
            ids,
            max_tokens=int(random.integers(1, LONGEST_OUTPUT if random.random() < 0.1 else 6)),
            n=2 if random.random() < 0.02 else 1,
            ignore_eos=random.random() < 0.5,
        )


def test_soak():
    random = np.random.default_rng(0)
    serving = Serving(
        FakeEngine((512,) * PLACES, build=BUILD), seqs=ROWS, tokens=1024, max_queue_size=QUEUE
    )
    arrivals, one = requests(random), None
    submitted, cancelled, first = {}, set(), {}
    one = next(arrivals)
    steps = 0
    while one is not None or serving.executor.has_work:
        for _ in range(int(random.integers(0, 60))):
            if one is None:
                break
            try:
                serving.submit(one)
            except QueueFull:
                break
            submitted[one.request_id] = steps
            one = next(arrivals, None)
        if random.random() < 0.2 and submitted:
            victim = f"{max(0, len(submitted) - int(random.integers(1, 120)))}"
            if victim not in serving.terminal:
                cancelled.add(victim)
            serving.executor.cancel(victim)
        running = [*serving.scheduler.running]
        if running and random.random() < 0.1:
            serving.scheduler.preempt(running[random.integers(len(running))])
        told = len(serving.updates)
        serving.step()
        steps += 1
        for update in serving.updates[told:]:
            first.setdefault(update.request_id, steps)
        if steps % 50 == 0:
            check_invariants(serving.executor)
    waits = [first[name] - submitted[name] for name in first]
    metrics = serving.executor.metrics
    assert len(serving.requests) == REQUESTS
    assert max(waits) <= MAX_WAIT
    assert metrics.preemptions > 100
    assert metrics.requests_refused > 100
    assert metrics.requests_finished["cancelled"] == len(cancelled) > 100
    assert not serving.errors
    serving.check_outputs(cut=cancelled)
    serving.check_no_leak()
