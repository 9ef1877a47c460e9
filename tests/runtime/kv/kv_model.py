"""A KV cache with a model of what its pages hold: every entry is written and read as an op would.

Instead of bytes each entry holds the *history* of its token: a number that stands for the salt and all
tokens up to and including it. So whatever a sequence can read is known to be its own, or it is not.
"""

from dataclasses import dataclass, field

import numpy as np

from dsv4_trt.errors import CapacityError
from dsv4_trt.kv_layout import LOGICAL_BLOCK, Bucket
from dsv4_trt.runtime.kv.block_hashes import extend_hashes
from dsv4_trt.runtime.kv.cache import KvCache, TableSize
from dsv4_trt.runtime.kv.marks import Mark
from dsv4_trt.runtime.kv.pool import PagePool
from dsv4_trt.runtime.kv.prefix_cache import PrefixCache
from dsv4_trt.runtime.kv.retention import Retention
from tests.runtime.kv.kv_checks import KvChecks

GARBAGE = -1


def block_hashes(tokens, salt):
    """The names of a token list's complete blocks."""
    hashes = []
    extend_hashes(hashes, np.array(tokens, np.int32), salt)
    return hashes


def histories(salt, tokens, known=()):
    """One number per token that stands for everything up to it; `known` is the beginning of them."""
    found = list(known)
    for token in tokens[len(found) :]:
        found.append(hash((found[-1] if found else salt, token)) & (2**62 - 1))
    return np.array(found, np.int64)


@dataclass
class Sequence:
    """Tokens that are in the cache, and the tails it left behind."""

    row: int
    salt: str
    tokens: list = field(default_factory=list)
    hashes: list = field(default_factory=list)
    history: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    tail: object = None

    def grow(self, tokens):
        self.tokens = self.tokens + list(tokens)
        self.history = histories(self.salt, self.tokens, self.history)
        extend_hashes(self.hashes, np.array(self.tokens, np.int32), self.salt)


class KvModel(KvChecks):
    """A cache, its sequences by row, and what was written where."""

    def __init__(self, layout, num_pages, *, max_seqs, max_seq_len, retention="newest"):
        self.layout = layout
        self.retention = Retention.parse(retention)
        self.pools = {b: PagePool(b, num_pages[b]) for b in Bucket}
        bucket_of = {kv.cache_class: kv.bucket for kv in layout.classes.values()}
        self.prefix = PrefixCache(self.pools, bucket_of)
        size = TableSize(
            max_seqs=max_seqs,
            max_seq_len=max_seq_len,
            tails_per_step=self.retention.tails_per_step(max_seq_len),
        )
        self.cache = KvCache(list(layout.classes.values()), self.pools, self.prefix, size)
        self.sequences = {}
        self.block_history = {}  # by block hash: the histories of its tokens
        self.order = {c: i for i, c in enumerate(layout.classes)}
        widest = max(kv.entries_per_page for kv in layout.classes.values())
        self.written = {b: np.full((num_pages[b], widest), GARBAGE, np.int64) for b in Bucket}
        self.owner = {b: np.full(num_pages[b], GARBAGE, np.int64) for b in Bucket}

    # what sequences do

    def open(self, salt=""):
        seq = Sequence(self.cache.open(), salt)
        self.sequences[seq.row] = seq
        return seq

    def adopt(self, seq, tokens):
        """Begin with the longest hit of a prompt; returns the tokens that it saves."""
        tail = self.prefix.find(block_hashes(tokens, seq.salt), len(tokens) - 1)
        if tail is None:
            return 0
        assert tail.num_tokens <= len(tokens) - 1
        assert not tail.num_tokens % LOGICAL_BLOCK
        self.cache.adopt(seq.row, tail)
        self.prefix.use(tail, id(seq))
        seq.grow(tokens[: tail.num_tokens])
        self.check_reads(seq)
        return tail.num_tokens

    def close(self, seq):
        if seq.tail is not None:
            self.prefix.touch(seq.tail)
        self.cache.close(seq.row)
        del self.sequences[seq.row]

    def fork(self, seq):
        """A second sequence with the same tokens; raises `CapacityError` and takes nothing."""
        before = self.snapshot()
        try:
            row, copies = self.cache.fork(seq.row)
        except CapacityError:
            self.check_unchanged(before)
            raise
        for bucket, sources, targets in copies:
            self.written[bucket][targets] = self.written[bucket][sources]
            self.owner[bucket][targets] = self.owner[bucket][sources]
        new = Sequence(row, seq.salt, list(seq.tokens), list(seq.hashes), seq.history)
        self.sequences[row] = new
        self.check_reads(new)
        return new

    def step(self, feeds, *, marks=True, commit=True):
        """Feed `(sequence, tokens)` pairs; raises `CapacityError` and takes nothing."""
        before = self.snapshot()
        rows = np.array([seq.row for seq, _ in feeds], np.int32)
        lengths = np.array([len(tokens) for _, tokens in feeds], np.int32)
        starts = self.cache.num_tokens[rows]
        grown = [Sequence(s.row, s.salt, s.tokens, list(s.hashes), s.history) for s, _ in feeds]
        for seq, (_, tokens) in zip(grown, feeds, strict=True):
            seq.grow(tokens)
        found = self.marks(grown, starts) if marks else []
        need = self.cache.need(rows, starts + lengths, found)
        try:
            prepared = self.cache.prepare(rows, starts + lengths, found)
        except CapacityError:
            assert any(n > self.pools[b].num_available for b, n in need.items())
            self.check_unchanged(before)
            raise
        held = {b: pool.num_held for b, pool in self.pools.items()}
        assert {b: held[b] - before[0][b] for b in Bucket} == need
        self.check_no_holder_lost()
        self.run(grown, starts, lengths, prepared)
        if not commit:
            self.cache.rollback(prepared)
            self.check_unchanged(before)
            return
        self.cache.commit(prepared)
        for seq, (old, _) in zip(grown, feeds, strict=True):
            old.tokens, old.hashes, old.history = seq.tokens, seq.hashes, seq.history
        for mark in found:
            self.leave_behind(feeds[mark.index][0], mark)

    def marks(self, grown, starts):
        """The boundaries that the policy keeps, and their hashes."""
        found = []
        for index, seq in enumerate(grown):
            boundaries = self.retention.boundaries(int(starts[index]), len(seq.tokens))
            for nth, boundary in enumerate(boundaries):
                found.append(Mark(index, boundary, nth, seq.hashes))
                for block in range(boundary // LOGICAL_BLOCK):
                    span = slice(block * LOGICAL_BLOCK, (block + 1) * LOGICAL_BLOCK)
                    self.block_history[seq.hashes[block]] = seq.history[span]
        return found

    def leave_behind(self, seq, mark):
        """As an executor does: a newer tail replaces one that neither lasts nor is shared."""
        self.prefix.use(mark.tail, id(seq))
        self.prefix.replace(seq.tail, mark.tail, self.retention)
        seq.tail = mark.tail

    # what an engine does

    def run(self, grown, starts, lengths, prepared):
        """Read what the ops read from before the step, write what slots name, read the entries."""
        size = int(lengths.sum())
        positions = np.concatenate(
            [np.arange(s, s + n, dtype=np.int32) for s, n in zip(starts, lengths, strict=True)]
        )
        slots = np.full((len(self.cache.classes), size), 7, np.int32)
        self.cache.fill_slots(prepared, lengths, positions, slots)
        for seq, start in zip(grown, starts, strict=True):
            self.check_windows(seq, int(start))
            self.check_entries(seq, int(start))
        table_rows = np.repeat(prepared.rows, lengths)
        history = np.concatenate(
            [seq.history[start:] for seq, start in zip(grown, starts, strict=True)]
        )
        for kv, row in zip(self.cache.classes, slots, strict=True):
            self.write(kv, table_rows, row, history)
        for seq in grown:
            self.check_entries(seq, len(seq.tokens))
            self.check_windows(seq, len(seq.tokens), after=True)

    def write(self, kv, table_rows, slots, history):
        """Store at the slots; a page that is written has one holder and no later reader."""
        at = (slots >= 0).nonzero()[0]
        first = 0 if kv.window is None else kv.window_pages
        columns, entries = first + slots[at] // kv.entries_per_page, slots[at] % kv.entries_per_page
        pages = self.cache.tables[kv.cache_class][:, table_rows[at], columns]
        assert (pages >= 0).all(), f"{kv.cache_class}: a slot without a page"
        pool = self.pools[kv.bucket]
        assert (pool.holders()[pages] == 1).all(), f"{kv.cache_class}: writes a shared page"
        assert not pool.keepers()[pages].any(), f"{kv.cache_class}: writes a cached page"
        places = pages.astype(np.int64) * kv.entries_per_page + entries
        assert np.unique(places).size == places.size, f"{kv.cache_class}: two rows in one place"
        self.written[kv.bucket][pages, entries] = history[at]
        self.owner[kv.bucket][pages] = self.owners(kv)[:, None]
