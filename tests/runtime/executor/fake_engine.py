"""An engine without weights: what it says next depends on all that its pages hold, and on nothing else.

It keeps no sequence anywhere but in pages, and finds them through the batch's block tables and slot
mappings as the ops do. A page handed out twice, freed too early, or wrongly taken for a cached one
therefore changes its output, or is refused because its rows are not those that were asked for.

    csa             sum of weighted tokens from the first one to the end of the entry
    indexer         the same sum over the entry's four tokens and the four before
    hca             the same sum over the entry's 128 tokens
    state and swa   position and token
"""

from dataclasses import replace

import numpy as np

from dsv4_trt.contract import BuildSpec
from dsv4_trt.kv_layout import Bucket, CacheClass, solve
from dsv4_trt.kv_plan import plan_for_sequences
from dsv4_trt.presets import TINY, cut_layers
from dsv4_trt.runtime.batch import StepOutput

VOCAB = 64
SPEC = replace(cut_layers(TINY, 3), vocab_size=VOCAB)
BUILD = BuildSpec(max_batch_size=8, max_num_tokens=1024, max_seq_len=1024, mtp=False)
MASK = 2**64 - 1
SWA_AGES = (100, 127)  # tokens back that every prediction looks at; one more is picked by the hash

WEIGHTS = np.random.default_rng(1).integers(0, 2**64, VOCAB, np.uint64)
POWERS = np.cumprod(np.full(1 << 16, 0x9E3779B97F4A7C15, np.uint64), dtype=np.uint64)  # by position


def scramble(x):
    """A bijection of 64-bit numbers, of ints and of uint64 arrays."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


class FakeEngine:
    """See `runtime.engine.Engine`. `lens` are the sequences that the pools are sized for."""

    def __init__(
        self, lens=(1024,) * 4, *, spec=SPEC, build=BUILD, ladders=None, plan=None, tails=1
    ):
        self.spec, self.build, self.ladders = spec, build, ladders
        self.layout = solve(spec, "fp8", "fp4")
        self.plan = plan_for_sequences(self.layout, list(lens), tails) if plan is None else plan
        self.owner = None
        self.num_steps = 0
        self.fails_at = set()  # numbers of steps that write all they should and then raise
        self.shapes = set()  # (sequences, tokens, logits) of the steps
        widest = dict.fromkeys(Bucket, 1)
        for kv in self.layout.classes.values():
            widest[kv.bucket] = max(widest[kv.bucket], kv.entries_per_page)
        pages = self.plan.num_pages
        self.values = {b: np.full((pages[b], widest[b]), MASK, np.uint64) for b in Bucket}
        self.roles = {b: np.full(pages[b], -1, np.int64) for b in Bucket}
        self.role_of = {  # by class, of each layer's pages
            kv.cache_class: order * 1000 + np.arange(len(kv.layers))[:, None]
            for order, kv in enumerate(self.layout.classes.values())
        }

    def step(self, batch, *, want_streams=False):
        self.num_steps += 1
        self.shapes.add((batch.seq_lens.size, batch.token_ids.size, batch.logits_rows.size))
        logits = FakeStep(self, batch).run(fails=self.num_steps in self.fails_at)
        return StepOutput(logits=logits, streams=None)

    def step_mtp(self, batch, streams):
        raise AssertionError("this engine has no MTP block")

    def copy_pages(self, bucket, sources, targets):
        self.values[bucket][targets] = self.values[bucket][sources]
        self.roles[bucket][targets] = self.roles[bucket][sources]


class FakeStep:
    """One batch on its way through the pages."""

    def __init__(self, engine, batch):
        self.engine, self.batch = engine, batch
        self.rows = np.flatnonzero(batch.seq_ids >= 0)  # without padding
        self.seqs, self.positions = batch.seq_ids[self.rows], batch.positions[self.rows]
        self.first = batch.query_start[:-1]
        self.starts = batch.seq_lens - np.diff(batch.query_start)
        assert (np.diff(self.seqs) >= 0).all()
        expected = self.starts[self.seqs] + self.rows - self.first[self.seqs]
        assert (self.positions == expected).all()
        decodes = self.first[: batch.num_decodes]
        assert (decodes == np.arange(batch.num_decodes)).all(), "decode i is not row i"

    def run(self, *, fails):
        """Logits `[num_logits, vocab]`, best at the token that the digest of the history names."""
        prefix = self.prefix_sums()
        entries = {
            CacheClass.CSA: prefix[self.completing(4)],
            CacheClass.INDEXER: self.pooled(CacheClass.INDEXER_STATE, 4, 8),
            CacheClass.HCA: self.pooled(CacheClass.HCA_STATE, 128, 128),
        }
        at = np.searchsorted(self.rows, self.batch.logits_rows)
        digest = scramble(prefix[at]) + self.seen_window(at, prefix[at])
        for cache_class, values in entries.items():
            rows = self.completing(self.engine.layout[cache_class].ratio)
            self.write(cache_class, rows, values)
        for cache_class, kv in self.engine.layout.classes.items():
            if kv.window is not None:
                fed = self.batch.token_ids[self.rows].astype(np.uint64)
                tagged = self.positions.astype(np.uint64) << np.uint64(8) | fed
                self.write(cache_class, np.arange(self.rows.size), tagged)
        if fails:
            raise FloatingPointError("the fake engine was told to fail")
        digest = scramble(digest + self.seen_entries(at, prefix[at]))
        best = (digest % self.engine.spec.vocab_size).astype(np.int64)
        size = self.engine.spec.vocab_size
        return -((np.arange(size) - best[:, None]) % size).astype(np.float32)

    def prefix_sums(self):
        """For each token the weighted sum of its sequence up to it."""
        live = np.flatnonzero(self.batch.seq_lens > 0)
        starts = self.starts[live]
        old = starts >= 4
        base = np.zeros(self.batch.seq_lens.size, np.uint64)
        base[live[old]] = self.entries(CacheClass.CSA, live[old], starts[old] // 4 - 1)
        for k in range(3):
            position = starts // 4 * 4 + k
            some = position < starts
            tokens = self.older(CacheClass.CSA_STATE, live[some], position[some])
            base[live[some]] += WEIGHTS[tokens] * POWERS[position[some]]
        terms = WEIGHTS[self.batch.token_ids[self.rows]] * POWERS[self.positions]
        sums = np.cumsum(terms, dtype=np.uint64)
        first = np.searchsorted(self.rows, self.first[live])
        base[live] -= (sums - terms)[first]
        return base[self.seqs] + sums

    def completing(self, ratio):
        return np.flatnonzero((self.positions + 1) % ratio == 0)

    def pooled(self, state_class, ratio, count):
        """Sums over the last `count` tokens of each entry, from state pages where they are older."""
        rows = self.completing(ratio)
        if not rows.size:
            return np.zeros(0, np.uint64)
        positions = self.positions[rows][:, None] + np.arange(1 - count, 1)
        seqs = np.broadcast_to(self.seqs[rows][:, None], positions.shape)
        exist = positions >= 0
        terms = np.zeros(positions.shape, np.uint64)
        tokens = self.tokens(state_class, seqs[exist], positions[exist])
        terms[exist] = WEIGHTS[tokens] * POWERS[positions[exist]]
        return terms.sum(axis=1, dtype=np.uint64)

    def seen_window(self, at, prefix):
        """What the tokens at some ages, given and picked, add to the digests of rows `at`."""
        picked = (prefix >> np.uint64(20)) % 127 + 1
        total = np.zeros(at.size, np.uint64)
        for nth, age in enumerate((*SWA_AGES, picked.astype(np.int64))):
            positions = self.positions[at] - age
            some = positions >= 0
            tokens = self.tokens(CacheClass.SWA, self.seqs[at][some], positions[some])
            total[some] += WEIGHTS[tokens] << np.uint64(nth + 1)
        return total

    def seen_entries(self, at, prefix):
        """What one picked entry of each class adds."""
        total = np.zeros(at.size, np.uint64)
        for nth, cache_class in enumerate((CacheClass.CSA, CacheClass.INDEXER, CacheClass.HCA)):
            count = (self.positions[at] + 1) // self.engine.layout[cache_class].ratio
            some = count > 0
            if not some.any():
                continue
            picked = (prefix[some] >> np.uint64(9 * nth)) % count[some].astype(np.uint64)
            found = self.entries(cache_class, self.seqs[at][some], picked.astype(np.int64))
            total[some] += scramble(found) << np.uint64(nth)
        return total

    def tokens(self, cache_class, seqs, positions):
        """Tokens of the step where they are in it, older ones from the window's pages."""
        starts = self.starts[seqs]
        found = np.empty(seqs.size, np.int64)
        new = positions >= starts
        rows = (self.first[seqs] + positions - starts)[new]
        found[new] = self.batch.token_ids[rows]
        found[~new] = self.older(cache_class, seqs[~new], positions[~new])
        return found

    def older(self, cache_class, seqs, positions):
        """Tokens from before the step: the ring before it must hold just these positions."""
        if not seqs.size:
            return np.zeros(0, np.int64)
        kv = self.engine.layout[cache_class]
        columns = positions // kv.tokens_per_page % kv.window_pages
        found = self.read(kv, seqs, columns, positions % kv.tokens_per_page)
        assert (found >> np.uint64(8) == positions.astype(np.uint64)).all(), f"{kv.cache_class}"
        return (found & np.uint64(255)).astype(np.int64)

    def entries(self, cache_class, seqs, entries):
        kv = self.engine.layout[cache_class]
        columns = entries // kv.entries_per_page
        return self.read(kv, seqs, columns, entries % kv.entries_per_page)

    def pages(self, kv, seqs, columns):
        rows = self.batch.table_rows[seqs]
        pages = self.batch.block_tables[kv.cache_class][:, rows, columns]
        assert (pages >= 0).all(), f"{kv.cache_class}: a page is missing"
        return pages

    def read(self, kv, seqs, columns, entries):
        """Entries of the first layer; every layer's must be the same, in pages written for it."""
        pages = self.pages(kv, seqs, columns)
        roles = self.engine.role_of[kv.cache_class]
        assert (self.engine.roles[kv.bucket][pages] == roles).all(), f"{kv.cache_class}"
        found = self.engine.values[kv.bucket][pages, entries]
        assert (found == found[:1]).all(), f"{kv.cache_class}: layers differ"
        return found[0]

    def write(self, cache_class, rows, values):
        """Store the values of some rows where their slots say."""
        if not rows.size:
            return
        kv = self.engine.layout[cache_class]
        slots = self.batch.slot_mappings[cache_class][self.rows[rows]]
        if kv.window is None:
            assert (slots >= 0).all(), f"{cache_class}: a complete entry has no slot"
        kept = slots >= 0
        slots, seqs = slots[kept], self.seqs[rows[kept]]
        columns = slots // kv.entries_per_page + (0 if kv.window is None else kv.window_pages)
        pages = self.pages(kv, seqs, columns)
        self.engine.values[kv.bucket][pages, slots % kv.entries_per_page] = values[kept]
        self.engine.roles[kv.bucket][pages] = self.engine.role_of[cache_class]
