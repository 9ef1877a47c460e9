"""Step metadata, built in arrays that are allocated once: no work grows with the length of a sequence.

A step may be padded to the rungs of ladders, so that an engine meets few shapes: decodes first, then rows
of padding up to a rung, then the tokens of prefill chunks, then padding up to a rung.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsv4_trt.ladder import Ladder
from dsv4_trt.runtime.batch import IntArray, StepBatch
from dsv4_trt.runtime.kv.cache import KvCache, PreparedStep
from dsv4_trt.runtime.kv.marks import Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLadders:
    """Sizes that an engine runs steps at."""

    seqs: Ladder  # numbers of decoding sequences, of sequences and of rows of logits
    tokens: Ladder


@dataclass(slots=True, kw_only=True)
class StepRecord:
    """What a step feeds: all there is to know besides the state of the cache.

    Decodes (sequences that go on with one token) come first.
    """

    rows: IntArray  # [num_seqs] of the block tables
    lengths: IntArray  # [num_seqs] tokens that each feeds, at least 1
    token_ids: IntArray  # [num_tokens]
    num_logits: IntArray  # [num_seqs] how many of the last tokens' logits are wanted
    num_decodes: int
    marks: Sequence[Mark] = ()


class StepArrays:
    """The buffers of one network's steps."""

    def __init__(
        self, kv: KvCache, max_seqs: int, max_tokens: int, ladders: StepLadders | None = None
    ) -> None:
        self.kv = kv
        self.ladders = ladders
        self._token_ids = np.zeros(max_tokens, np.int32)
        self._positions = np.zeros(max_tokens, np.int32)
        self._seq_ids = np.zeros(max_tokens, np.int32)
        self._slots = {c: np.zeros(max_tokens, np.int32) for c in kv.tables}
        self._query_start = np.zeros(max_seqs + 1, np.int32)
        self._seq_lens = np.zeros(max_seqs, np.int32)
        self._table_rows = np.zeros(max_seqs, np.int32)
        self._logits_rows = np.zeros(max_tokens, np.int32)
        self._count = np.arange(max(max_tokens, max_seqs), dtype=np.int32)

    def fill(self, record: StepRecord, step: PreparedStep) -> StepBatch:
        """The batch of a prepared step; it stays valid until the next one is filled."""
        lengths, num_seqs = record.lengths, record.rows.size
        tokens = record.token_ids.size
        first = np.cumsum(lengths, dtype=np.int32) - lengths  # row of each sequence's first token
        positions = self._positions[:tokens]
        positions[:] = np.repeat(step.rows.starts - first, lengths)
        positions += self._count[:tokens]
        self._token_ids[:tokens] = record.token_ids
        self._seq_ids[:tokens] = np.repeat(self._count[:num_seqs], lengths)
        slots = {c: buffer[:tokens] for c, buffer in self._slots.items()}
        self.kv.fill_slots(step, lengths, positions, slots)
        padding = self._pad_decodes(record.num_decodes, tokens)
        seqs = self._fill_seqs(record, step, padding)
        logits = self._fill_logits(record, first, padding)
        total = self._pad_end(tokens + padding)
        return StepBatch(
            token_ids=self._token_ids[:total],
            positions=self._positions[:total],
            seq_ids=self._seq_ids[:total],
            query_start=self._query_start[: seqs + 1],
            seq_lens=self._seq_lens[:seqs],
            table_rows=self._table_rows[:seqs],
            logits_rows=self._logits_rows[:logits],
            num_decodes=record.num_decodes + padding,
            block_tables=self.kv.tables,
            slot_mappings={c: buffer[:total] for c, buffer in self._slots.items()},
        )

    def _pad_decodes(self, decodes: int, tokens: int) -> int:
        """Move the prefill tokens behind the rung of the decodes; returns how many rows that adds."""
        padding = self._padding("seqs", decodes)
        if not padding:
            return 0
        for array, fill in self._token_arrays():
            array[decodes + padding : tokens + padding] = array[decodes:tokens].copy()
            array[decodes : decodes + padding] = fill
        self._seq_ids[decodes + padding : tokens + padding] += padding
        return padding

    def _pad_end(self, tokens: int) -> int:
        """Fill up to a rung of tokens; returns it."""
        total = tokens + self._padding("tokens", tokens)
        for array, fill in self._token_arrays():
            array[tokens:total] = fill
        return total

    def _fill_seqs(self, record: StepRecord, step: PreparedStep, padding: int) -> int:
        """Lengths, rows and query starts, with padding; returns the number of sequences."""
        decodes, num_seqs = record.num_decodes, record.rows.size + padding
        seqs = num_seqs + self._padding("seqs", num_seqs)
        counts = np.zeros(seqs, np.int32)
        for array, values, fill in (
            (self._seq_lens[:seqs], step.rows.ends, 0),
            (self._table_rows[:seqs], record.rows, 0),
            (counts, record.lengths, 1),
        ):
            array[:decodes] = values[:decodes]
            array[decodes : decodes + padding] = fill
            array[decodes + padding : num_seqs] = values[decodes:]
            array[num_seqs:] = 0
        np.cumsum(counts, out=self._query_start[1 : seqs + 1])
        return seqs

    def _fill_logits(self, record: StepRecord, first: IntArray, padding: int) -> int:
        """Rows whose logits are wanted, in the order of the sequences; returns how many with padding."""
        wanted = record.num_logits
        end = first + record.lengths
        end[record.num_decodes :] += padding
        count = int(wanted.sum())
        offsets = np.cumsum(wanted, dtype=np.int32) - wanted
        rows = self._logits_rows[:count]
        rows[:] = np.repeat(end - wanted - offsets, wanted)
        rows += self._count[:count]
        total = count + self._padding("seqs", count)
        self._logits_rows[count:total] = 0
        return total

    def _padding(self, which: str, count: int) -> int:
        """Rows that bring a count to its rung; more logits than any rung (all positions) get none."""
        if self.ladders is None or not count:
            return 0
        ladder: Ladder = getattr(self.ladders, which)
        return 0 if count > ladder.maximum else ladder.rung(count) - count

    def _token_arrays(self) -> list[tuple[IntArray, int]]:
        arrays = [(self._token_ids, 0), (self._positions, 0), (self._seq_ids, -1)]
        return arrays + [(slots, -1) for slots in self._slots.values()]
