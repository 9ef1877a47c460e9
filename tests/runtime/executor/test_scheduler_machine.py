"""Any mix of requests, cancels, failures and time: nothing leaks, nothing hangs, everything ends once."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dsv4_trt.errors import QueueFull, RequestError
from dsv4_trt.ladder import Ladder, StepLadders
from tests.runtime.executor.fake_engine import FakeEngine
from tests.runtime.executor.serving import Serving, check_invariants, prompt, request

NAMES = [f"r{n}" for n in range(30)]
LADDERS = StepLadders(seqs=Ladder((1, 2, 4, 8)), tokens=Ladder((8, 64, 512)))


class ExecutorMachine(RuleBasedStateMachine):
    """Pools of one longest sequence and a bit, a queue of 12."""

    @initialize(
        retention=st.sampled_from(["newest", "every", 2, None]),
        tokens=st.sampled_from([9, 64, 300, 512]),
        more=st.sampled_from([0, 300, 3000]),
        seqs=st.sampled_from([1, 3, 8]),
        ladders=st.sampled_from([None, LADDERS]),
    )
    def begin(self, retention, tokens, more, seqs, ladders):
        engine = FakeEngine((1024, more) if more else (1024,), ladders=ladders, tails=5)
        self.serving = Serving(
            engine, retention=retention, seqs=seqs, tokens=tokens, max_queue_size=12
        )
        self.disturbed = set()
        self.num_accepted = 0

    @rule(
        name=st.sampled_from(NAMES),
        shared=st.sampled_from([0, 0, 255, 256, 257, 512, 600]),
        own=st.integers(1, 300),
        seed=st.integers(0, 3),
        output=st.integers(1, 60),
        priority=st.sampled_from([0, 0.5, 0.5, 1]),
        n=st.sampled_from([1, 1, 1, 2, 4]),
        salt=st.sampled_from(["", "", "salt"]),
        wait=st.sampled_from([None, None, None, 5, 40]),
    )
    def submit(self, name, shared, own, seed, output, priority, n, salt, wait):
        one = request(
            name,
            prompt(shared) + prompt(own, seed),
            max_tokens=output,
            priority=priority,
            n=n,
            temperature=float(n > 1),
            seed=seed,
            salt=salt,
            ignore_eos=seed > 0,
            deadline=None if wait is None else self.serving.clock.now + wait,
        )
        if name in self.serving.requests:
            if name not in self.serving.terminal:
                try:
                    self.serving.executor.submit(one)
                except (RequestError, QueueFull):
                    return
                raise AssertionError("one id for two requests")
            return
        try:
            self.serving.submit(one)
        except QueueFull:
            executor = self.serving.executor
            waiting = len(executor._arrived) + len(executor.scheduler.waiting)
            assert waiting >= 12
            return
        if wait is not None:
            self.disturbed.add(name)
        self.num_accepted += 1

    @rule(name=st.sampled_from(NAMES))
    def cancel(self, name):
        self.serving.executor.cancel(name)
        if name in self.serving.requests and name not in self.serving.terminal:
            self.disturbed.add(name)

    @rule(count=st.sampled_from([1, 1, 2, 10]))
    def step(self, count):
        """A step with work to do does some: it runs the engine or ends what was to be ended."""
        for _ in range(count):
            before = len(self.serving.updates), self.serving.engine.num_steps
            had_work = self.serving.executor.has_work
            self.serving.step()
            after = len(self.serving.updates), self.serving.engine.num_steps
            assert (after != before) == had_work
            self.serving.clock.now += 1

    @rule(seconds=st.integers(0, 50))
    def pass_time(self, seconds):
        self.serving.clock.now += seconds

    @precondition(lambda self: self.serving.executor.has_work)
    @rule()
    def fail(self):
        self.serving.engine.fails_at = {self.serving.engine.num_steps + 1}
        self.step(1)
        self.serving.engine.fails_at = set()
        self.disturbed |= {name for name, _ in self.serving.errors}

    @invariant()
    def everything_holds(self):
        if hasattr(self, "serving"):
            check_invariants(self.serving.executor)
            metrics = self.serving.executor.metrics
            assert metrics.requests_accepted == self.num_accepted
            assert sum(metrics.requests_finished.values()) == len(self.serving.terminal)

    def teardown(self):
        if hasattr(self, "serving"):
            self.serving.step()
            self.serving.finish().check_outputs(cut=self.disturbed)
            assert {name for name, _ in self.serving.errors} <= self.disturbed
            self.serving.check_no_leak()


TestExecutorMachine = ExecutorMachine.TestCase
TestExecutorMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
