"""Step metadata, built in arrays that are allocated once: no work grows with the length of a sequence.

A step may be padded to the rungs of ladders, so that an engine meets few shapes: decodes first, then rows
of padding up to a rung, then the tokens of prefill chunks, then padding up to a rung.
"""

from __future__ import annotations

import numpy as np

from dsv4_trt.ladder import Ladder, StepLadders
from dsv4_trt.runtime.batch import IntArray, StepBatch, StepRecord
from dsv4_trt.runtime.kv.cache import KvCache
from dsv4_trt.runtime.kv.step import PreparedStep


class StepArrays:
    """The buffers of one network's steps."""

    def __init__(
        self, kv: KvCache, max_seqs: int, max_tokens: int, ladders: StepLadders | None = None
    ) -> None:
        self.kv = kv
        self.ladders = ladders
        # padded decodes, and beside them as many prompts as there are places
        all_seqs = max_seqs if ladders is None else max_seqs + ladders.seqs.maximum
        self._token_ids = np.zeros(max_tokens, np.int32)
        self._positions = np.zeros(max_tokens, np.int32)
        self._seq_ids = np.zeros(max_tokens, np.int32)
        self._slots = np.zeros((len(kv.classes), max_tokens), np.int32)
        self._query_start = np.zeros(all_seqs + 1, np.int32)
        self._seq_lens = np.zeros(all_seqs, np.int32)
        self._table_rows = np.zeros(all_seqs, np.int32)
        self._logits_rows = np.zeros(max_tokens, np.int32)
        self._count = np.arange(max(max_tokens, all_seqs) + 1, dtype=np.int32)

    def fill(self, record: StepRecord, step: PreparedStep) -> StepBatch:
        """The batch of a prepared step; it stays valid until the next one is filled."""
        seqs, tokens = record.rows.size, record.token_ids.size
        starts = self._query_start
        np.cumsum(record.lengths, out=starts[1 : seqs + 1])
        self._token_ids[:tokens] = record.token_ids
        self._fill_positions(step.starts - starts[:seqs], record.lengths, tokens)
        self.kv.fill_slots(step, record.lengths, self._positions[:tokens], self._slots[:, :tokens])
        self._seq_lens[:seqs] = step.ends
        self._table_rows[:seqs] = record.rows
        logits = self._fill_logits(record, starts[1 : seqs + 1])
        decodes = record.num_decodes
        if self.ladders is not None:
            decodes, seqs, tokens, logits = self._pad(self.ladders, decodes, seqs, tokens, logits)
        return self._batch(decodes, seqs, tokens, logits)

    def padding(self, count: int) -> StepBatch:
        """A step of `count` padding decodes: no page is read or written."""
        for array, fill in self._token_arrays():
            array[:count] = fill
        for array in (self._seq_lens, self._table_rows, self._logits_rows):
            array[:count] = 0
        self._query_start[: count + 1] = self._count[: count + 1]
        return self._batch(count, count, count, count)

    def _batch(self, decodes: int, seqs: int, tokens: int, logits: int) -> StepBatch:
        """The first so many of everything."""
        return StepBatch(
            token_ids=self._token_ids[:tokens],
            positions=self._positions[:tokens],
            seq_ids=self._seq_ids[:tokens],
            query_start=self._query_start[: seqs + 1],
            seq_lens=self._seq_lens[:seqs],
            table_rows=self._table_rows[:seqs],
            logits_rows=self._logits_rows[:logits],
            num_decodes=decodes,
            block_tables=self.kv.tables,
            slot_mappings=dict(zip(self.kv.tables, self._slots[:, :tokens], strict=True)),
            table_ids=self.kv.table_ids,
            table_changes=self.kv.take_changes(),
        )

    def _fill_positions(self, offsets: IntArray, lengths: IntArray, tokens: int) -> None:
        """Positions and sequences of the tokens; `offsets [num_seqs]` is position minus token row."""
        seq_ids = self._count[: lengths.size]
        if tokens > lengths.size:
            offsets, seq_ids = np.repeat(offsets, lengths), np.repeat(seq_ids, lengths)
        np.add(self._count[:tokens], offsets, out=self._positions[:tokens])
        self._seq_ids[:tokens] = seq_ids

    def _fill_logits(self, record: StepRecord, ends: IntArray) -> int:
        """Rows whose logits are wanted, in the order of the sequences; returns how many."""
        wanted = record.num_logits
        if wanted.max() <= 1:
            rows = ends[wanted > 0] - 1
        else:
            before = np.cumsum(wanted) - wanted
            rows = np.repeat(ends - wanted - before, wanted) + np.arange(wanted.sum())
        self._logits_rows[: rows.size] = rows
        return rows.size

    def _pad(
        self, ladders: StepLadders, decodes: int, seqs: int, tokens: int, logits: int
    ) -> tuple[int, int, int, int]:
        """Pad decodes, sequences, tokens and rows of logits to their rungs; returns those.

        Every padding decode owns a row of padding, so that decode i is row i; other padding sequences
        own none.
        """
        more = _padding(ladders.seqs, decodes)
        for array, fill in self._token_arrays():
            _insert(array, decodes, tokens, more, fill)
        self._seq_ids[decodes + more : tokens + more] += more
        self._logits_rows[:logits] += more * (self._logits_rows[:logits] >= decodes)
        for array in (self._seq_lens, self._table_rows):
            _insert(array, decodes, seqs, more, 0)
        starts = self._query_start
        _insert(starts, decodes + 1, seqs + 1, more, 0)
        starts[decodes + 1 : decodes + more + 1] = starts[decodes] + self._count[1 : more + 1]
        starts[decodes + more + 1 : seqs + more + 1] += more
        seqs, tokens = seqs + more, tokens + more
        all_seqs = seqs + _padding(ladders.seqs, seqs)
        all_tokens = tokens + _padding(ladders.tokens, tokens)
        all_logits = logits + _padding(ladders.seqs, logits)
        for array, fill in self._token_arrays():
            array[tokens:all_tokens] = fill
        for array in (self._seq_lens, self._table_rows):
            array[seqs:all_seqs] = 0
        starts[seqs + 1 : all_seqs + 1] = starts[seqs]
        self._logits_rows[logits:all_logits] = 0
        return decodes + more, all_seqs, all_tokens, all_logits

    def _token_arrays(self) -> list[tuple[IntArray, int]]:
        arrays = [(self._token_ids, 0), (self._positions, 0), (self._seq_ids, -1)]
        return arrays + [(slots, -1) for slots in self._slots]


def _padding(ladder: Ladder, count: int) -> int:
    """How far it is to the next rung; more than any rung (logits of all positions) is not padded."""
    return 0 if not count or count > ladder.maximum else ladder.rung(count) - count


def _insert(array: IntArray, at: int, end: int, more: int, fill: int) -> None:
    """Shift `array[at:end]` up by `more` and fill the gap."""
    if more:
        array[at + more : end + more] = array[at:end].copy()
        array[at : at + more] = fill
