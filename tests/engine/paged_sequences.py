"""Sequences on an engine, step by step: with hits, forks, tails, and poison in free pages."""

from dataclasses import dataclass, field

import numpy as np
import torch

from dsv4_trt.runtime.batch import StepRecord
from dsv4_trt.runtime.kv.block_hashes import extend_hashes
from dsv4_trt.runtime.kv.marks import Mark
from dsv4_trt.runtime.kv.retention import Retention
from dsv4_trt.runtime.stepper import Stepper

POISON = -1  # the byte 0xFF: NaN in e4m3, e8m0, bf16 and fp32
MOST = 4  # tails of a step


@dataclass
class Sequence:
    row: int
    tokens: list = field(default_factory=list)
    tail: object = None

    def hashes(self):
        found = []
        extend_hashes(found, np.array(self.tokens, np.int32), "")
        return found


class PagedSequences:
    """A stepper and its sequences."""

    def __init__(self, engine, *, retention="newest"):
        self.engine = engine
        self.retention = Retention.parse(retention)
        self.stepper = Stepper(engine, tails_per_step=MOST)
        self.kv = self.stepper.kv

    def open(self):
        return Sequence(self.kv.open())

    def close(self, seq):
        self.kv.close(seq.row)

    def adopt(self, seq, tokens, at_most=None):
        """Begin with a hit; returns its tokens."""
        prompt = Sequence(-1, list(tokens))
        limit = len(tokens) - 1 if at_most is None else min(at_most, len(tokens) - 1)
        tail = self.stepper.prefix.find(prompt.hashes(), limit)
        if tail is None:
            return 0
        self.kv.adopt(seq.row, tail)
        self.stepper.prefix.use(tail, id(seq))
        seq.tokens = list(tokens[: tail.num_tokens])
        return tail.num_tokens

    def fork(self, seq):
        row, copies = self.kv.fork(seq.row)
        for bucket, sources, targets in copies:
            self.engine.copy_pages(bucket, sources, targets)
        return Sequence(row, list(seq.tokens))

    def feed(self, feeds):
        """One step; logits of all its tokens. Decodes come first."""
        marks, decodes = [], 0
        for index, (seq, tokens) in enumerate(feeds):
            start = len(seq.tokens)
            assert start == self.kv.num_tokens[seq.row]
            decodes += decodes == index and len(tokens) == 1 and start > 0
            seq.tokens = seq.tokens + list(tokens)
            found = self.retention.boundaries(start, len(seq.tokens))
            marks += [Mark(index, at, nth, seq.hashes()) for nth, at in enumerate(found)]
        lengths = np.array([len(tokens) for _, tokens in feeds], np.int32)
        record = StepRecord(
            rows=np.array([seq.row for seq, _ in feeds], np.int32),
            lengths=lengths,
            token_ids=np.concatenate([np.array(tokens, np.int32) for _, tokens in feeds]),
            num_logits=lengths,
            num_decodes=decodes,
            marks=marks,
        )
        output = self.stepper.run(record)
        for mark in marks:
            self.replace_tail(feeds[mark.index][0], mark.tail)
        return output.logits

    def replace_tail(self, seq, tail):
        """As an executor does: a newer tail replaces one that neither lasts nor is shared."""
        self.stepper.prefix.use(tail, id(seq))
        self.stepper.prefix.replace(seq.tail, tail, self.retention)
        seq.tail = tail

    def poison(self):
        """Fill every free page with NaN."""
        for bucket, pool in self.stepper.pools.items():
            free = torch.from_numpy(pool.free_pages())
            for slabs in self.engine._slabs:
                slabs[bucket][free] = POISON
