"""Anything that sequences can do to the cache, in any order: nothing leaks, nothing is mixed up."""

import contextlib

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from dsv4_trt.errors import CapacityError
from dsv4_trt.kv_layout import LOGICAL_BLOCK, Bucket, solve
from dsv4_trt.presets import FLASH, cut_layers
from tests.runtime.kv.kv_model import KvModel

SPEC = cut_layers(FLASH, 4)
MAX_SEQ_LEN = 1600
FORMATS = [("fp8", "fp8"), ("fp8", "fp4"), ("bf16", "bf16"), ("fp32", "fp32")]
SIZES = st.sampled_from([1, 1, 1, 2, 3, 5, 8, 60, 64, 100, 127, 128, 129, 200, 256, 257, 600, 900])
STREAMS = st.integers(1, 3)  # a stream's tokens are all the same, so streams share or diverge
PICK = st.integers(0, 1000)
MOSTLY = st.sampled_from([True, True, True, False])


class KvMachine(RuleBasedStateMachine):
    """Sequences that begin, step, fork and end, and a cache that is told to forget."""

    @initialize(
        formats=st.sampled_from(FORMATS),
        mtp=st.booleans(),
        retention=st.sampled_from(["newest", "every", 2]),
        max_seqs=st.integers(2, 4),
        room=st.sampled_from([1.0, 1.2, 1.7, 3.0]),
        size=SIZES,
    )
    def start(self, formats, mtp, retention, max_seqs, room, size):
        layout = solve(SPEC, *formats, mtp=mtp)
        need = layout.peak_pages_per_sequence(MAX_SEQ_LEN)
        self.model = KvModel(
            layout,
            {b: int(need[b] * room) for b in Bucket},
            max_seqs=max_seqs,
            max_seq_len=MAX_SEQ_LEN,
            retention=retention,
        )
        self.prompts = [[1] * 300]  # what was ever fed
        self.feed([(self.model.open(), [1] * size)])

    def pick(self, number):
        rows = sorted(self.model.sequences)
        return self.model.sequences[rows[number % len(rows)]]

    def has_row(self):
        return bool(self.model.sequences)

    def has_free_row(self):
        return self.model.cache.num_free_rows > 0

    def has_tails(self):
        return self.model.prefix.num_tails > 0

    def feed(self, feeds, **options):
        """A step, if it has room; a refusal is checked to take nothing."""
        with contextlib.suppress(CapacityError):
            self.model.step(feeds, **options)
            self.prompts = [*self.prompts[-5:], *(seq.tokens for seq, _ in feeds)]

    @precondition(has_free_row)
    @rule(
        salt=st.sampled_from(["", "", "", "b"]),
        number=PICK,
        cut=st.sampled_from([0, 256, 513, 1200]),
        stream=STREAMS,
        size=SIZES,
    )
    def begin(self, salt, number, cut, stream, size):
        """A prompt that begins as an earlier one does, as much of it as is cached."""
        prompt = [*self.prompts[number % len(self.prompts)][:cut], *[stream] * size]
        prompt = prompt[:MAX_SEQ_LEN]
        seq = self.model.open(salt)
        hit = self.model.adopt(seq, prompt)
        self.feed([(seq, prompt[hit:])])

    @precondition(has_row)
    @rule(number=PICK, stream=STREAMS, size=SIZES, marks=MOSTLY, commit=MOSTLY)
    def step_one(self, number, stream, size, marks, commit):
        seq = self.pick(number)
        size = min(size, MAX_SEQ_LEN - len(seq.tokens))
        if size:
            self.feed([(seq, [stream] * size)], marks=marks, commit=commit)

    @precondition(has_row)
    @rule(sizes=st.lists(SIZES, min_size=4, max_size=4), stream=STREAMS, commit=MOSTLY)
    def step_all(self, sizes, stream, commit):
        """One token for each sequence, or chunks of any size."""
        feeds = [
            (seq, [stream] * min(size, MAX_SEQ_LEN - len(seq.tokens)))
            for seq, size in zip(self.model.sequences.values(), sizes, strict=False)
        ]
        feeds = [(seq, tokens) for seq, tokens in feeds if tokens]
        if feeds:
            self.feed(feeds, commit=commit)

    @precondition(has_row)
    @rule(number=PICK, stream=STREAMS)
    def reach_boundary(self, number, stream):
        """Just the tokens that complete the block."""
        seq = self.pick(number)
        size = -len(seq.tokens) % LOGICAL_BLOCK or LOGICAL_BLOCK
        if len(seq.tokens) + size <= MAX_SEQ_LEN:
            self.feed([(seq, [stream] * size)])

    @precondition(has_row)
    @rule(number=PICK)
    def close(self, number):
        self.model.close(self.pick(number))

    @precondition(lambda self: self.has_row() and self.has_free_row())
    @rule(number=PICK, streams=st.tuples(STREAMS, STREAMS), size=SIZES)
    def fork(self, number, streams, size):
        """Two sequences that go on from one, in the same step."""
        seq = self.pick(number)
        size = min(size, MAX_SEQ_LEN - len(seq.tokens))
        with contextlib.suppress(CapacityError):
            new = self.model.fork(seq)
            self.model.check()
            if size:
                self.feed([(seq, [streams[0]] * size), (new, [streams[1]] * size)])

    @precondition(has_tails)
    @rule(
        number=PICK,
        bucket=st.sampled_from(list(Bucket)),
        share=st.sampled_from([0.1, 0.5, 0.9, 1.0]),
        what=st.sampled_from(["forget", "forget", "make room", "make room", "clear"]),
    )
    def let_go(self, number, bucket, share, what):
        prefix, pool = self.model.prefix, self.model.pools[bucket]
        if what == "forget":
            prefix.forget(prefix.tails()[number % prefix.num_tails])
        elif what == "make room":
            need = int(pool.num_available * share)
            prefix.make_room({bucket: need})
            assert pool.num_free >= need
        else:
            prefix.clear()
            assert not prefix.num_blocks
            assert not any(pool.num_cached for pool in self.model.pools.values())

    @invariant()
    def holds(self):
        self.model.check()

    @invariant()
    def a_copy_that_follows_the_changes_is_equal(self):
        cache = self.model.cache
        if not hasattr(self, "copy"):
            self.copy = cache.table_ids.copy()
        changes = cache.take_changes()
        self.copy[changes] = cache.table_ids[changes]
        assert (self.copy == cache.table_ids).all()

    def teardown(self):
        """When all have ended, the cache has the rest; when it forgets, every page is free."""
        if not hasattr(self, "model"):
            return
        for seq in list(self.model.sequences.values()):
            self.model.close(seq)
        self.model.check()
        self.model.prefix.clear()
        self.model.check()
        for pool in self.model.pools.values():
            assert pool.num_free == pool.num_pages


TestKvMachine = KvMachine.TestCase
TestKvMachine.settings = settings(
    max_examples=20,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
