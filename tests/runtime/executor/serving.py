"""An executor over the fake engine, with everything written down that it tells, and what must hold."""

from collections import Counter, defaultdict

import numpy as np

from dsv4_trt.runtime.executor import Executor
from dsv4_trt.runtime.executor_config import ExecutorConfig
from dsv4_trt.runtime.kv.retention import Retention
from dsv4_trt.runtime.request import Request
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.schedule.sequence import NO_ROW, Status
from tests.runtime.executor.fake_engine import VOCAB, FakeEngine
from tests.runtime.executor.fake_reference import FakeSampler, expected


class Clock:
    """Time that passes when told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def prompt(count, seed=0):
    """Tokens without the end-of-text one."""
    return (np.random.default_rng(seed).integers(2, VOCAB, count)).tolist()


def request(name, prompt_ids, *, priority=0.5, deadline=None, salt="", **params):
    """A greedy request unless `params` say otherwise; it does not end before `max_tokens`."""
    chosen = SamplingParams(**{"temperature": 0, "max_tokens": 8, "ignore_eos": True, **params})
    return Request(
        request_id=name,
        prompt_ids=prompt_ids,
        params=chosen,
        priority=priority,
        deadline=deadline,
        cache_salt=salt,
    )


class Serving:
    """An executor; `tokens`, `reasons` and `errors` are by (request id, index)."""

    def __init__(self, engine=None, *, retention="newest", seqs=8, tokens=512, **config):
        self.engine = FakeEngine() if engine is None else engine
        self.sampler, self.clock = FakeSampler(), Clock()
        policy = None if retention is None else Retention.parse(retention)
        config = {"max_num_seqs": seqs, "max_num_tokens": tokens, "retention": policy, **config}
        config = ExecutorConfig(**config)
        self.executor = Executor(self.engine, self.sampler, config, clock=self.clock)
        self.scheduler = self.executor.scheduler
        self.clear()

    def clear(self):
        """Forget what was written down."""
        self.requests = {}
        self.tokens, self.reasons, self.errors = defaultdict(list), {}, {}
        self.updates = []
        self.num_cached = {}
        self.terminal = Counter()

    def submit(self, *requests):
        for one in requests:
            self.executor.submit(one)
            self.requests[one.request_id] = one

    def step(self, count=1):
        for _ in range(count):
            self.take(self.executor.step())

    def take(self, updates):
        """Write down what an executor tells."""
        for update in updates:
            key = update.request_id, update.index
            assert key not in self.reasons, f"{key} ended before"
            assert update.request_id not in self.terminal, f"{key} comes after the last update"
            self.updates.append(update)
            if update.token is not None:
                self.tokens[key].append(update.token.token_id)
            if update.finish_reason is not None:
                self.reasons[key] = update.finish_reason
                self.num_cached[key] = update.num_cached
            if update.error is not None:
                self.errors[key] = update.error
            self.terminal[update.request_id] += update.finished
            if not update.finished:
                del self.terminal[update.request_id]

    def finish(self, *requests, limit=20000, check=False):
        """Submit, and step until nothing is left to do."""
        self.submit(*requests)
        for count in range(limit):
            if not self.executor.has_work:
                self.check_idle()
                return self
            self.step()
            if check and count % 5 == 0:
                check_invariants(self.executor)
        raise AssertionError(f"{self.scheduler.num_running} sequences run without end")

    def check_outputs(self, *, cut=()):
        """Every sequence said what it says alone; those of the requests in `cut` the beginning of it."""
        for name, one in self.requests.items():
            for index in range(one.params.n):
                key = name, index
                tokens, reason = expected(one.prompt_ids, one.params, index)
                if name in cut:
                    assert self.tokens[key] == tokens[: len(self.tokens[key])], key
                    continue
                assert key not in self.errors, f"{key}: {self.errors[key]!r}"
                assert self.tokens[key] == tokens, key
                assert self.reasons[key] == reason, key

    def check_idle(self):
        """Nothing runs or waits, nobody holds a page, and the counters add up."""
        check_invariants(self.executor)
        metrics, executor = self.executor.metrics, self.executor
        assert self.terminal == Counter(self.requests.keys())
        assert not executor._live
        assert not executor._generations
        assert not self.scheduler.num_running
        assert not len(self.scheduler.waiting)
        assert (metrics.waiting, metrics.running) == (0, 0)
        assert metrics.requests_accepted == len(self.requests)
        assert sum(metrics.requests_finished.values()) == len(self.requests)
        assert metrics.output_tokens == sum(map(len, self.tokens.values()))
        for bucket, pool in executor.stepper.pools.items():
            assert pool.num_held == 0, f"{pool.num_held} {bucket} pages are held by nobody"
            assert metrics.pages[bucket].held == 0
            assert metrics.pages[bucket].total == pool.num_pages

    def check_no_leak(self):
        """Without the prefix cache every page is free."""
        self.check_idle()
        self.executor.stepper.prefix.clear()
        for pool in self.executor.stepper.pools.values():
            assert pool.num_free == pool.num_pages


def check_invariants(executor):
    """What holds between any two steps: page states, holders, the tree, and rows of sequences."""
    check_sequences(executor)
    kv, prefix = executor.stepper.kv, executor.stepper.prefix
    holders, keepers = (
        {b: np.zeros(p.num_pages, np.int64) for b, p in kv.pools.items()} for _ in range(2)
    )
    for row in open_rows(kv):
        tokens = int(kv.num_tokens[row])
        for cls in kv.classes:
            columns = np.arange(cls.first_page(tokens), cls.end_page(tokens))
            if cls.window is not None:
                columns %= cls.window_pages
            holders[cls.bucket][kv.tables[cls.cache_class][:, row, columns]] += 1
    for owner in (*prefix.blocks().values(), *prefix.tails()):
        for cache_class, pages in owner.pages.items():
            keepers[prefix.bucket_of[cache_class]][pages] += 1
    for bucket, pool in kv.pools.items():
        check_pool(pool, holders[bucket], keepers[bucket])


def check_pool(pool, holders, keepers):
    """Counts of a pool are those that rows and tree give, and no page is in two states."""
    assert (pool.holders() == holders).all()
    assert (pool.keepers() == keepers).all()
    is_free = np.zeros(pool.num_pages, np.bool_)
    is_free[pool.free_pages()] = True
    assert np.count_nonzero(is_free) == pool.num_free
    assert (is_free == ((holders == 0) & (keepers == 0))).all()
    assert pool.num_free + pool.num_held + pool.num_cached == pool.num_pages
    assert pool.num_cached == np.count_nonzero((keepers > 0) & (holders == 0))


def check_sequences(executor):
    """Statuses, rows and counts of tokens agree."""
    scheduler, kv = executor.scheduler, executor.stepper.kv
    running = scheduler.running
    rows = [sequence.row for sequence in running]
    assert sorted(rows) == open_rows(kv)
    assert len({*rows}) == len(rows) <= scheduler.limits.max_num_seqs
    assert kv.num_free_rows + len(rows) == kv.size.max_seqs
    waiting = set(scheduler.waiting)
    alive = {*running, *waiting}
    assert len(alive) == len(running) + len(waiting)
    assert {*executor._generations} == alive
    for sequence in waiting:
        assert (sequence.status, sequence.row) == (Status.WAITING, NO_ROW)
    for sequence in running:
        assert kv.num_tokens[sequence.row] == sequence.num_computed
    for sequence in scheduler.decoding:
        assert sequence.status is Status.DECODING
        assert sequence.num_computed == sequence.length - 1
    for sequence in scheduler.prefilling:
        assert sequence.status is Status.PREFILLING
        assert sequence.num_computed < sequence.length


def open_rows(kv):
    return [row for row in range(kv.size.max_seqs) if kv.is_open(row)]
