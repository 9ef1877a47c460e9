"""What the scheduler decided for one step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dsv4_trt.kv_layout import LOGICAL_BLOCK
from dsv4_trt.runtime.batch import IntArray, StepRecord
from dsv4_trt.runtime.kv.marks import Mark
from dsv4_trt.runtime.kv.retention import Retention
from dsv4_trt.runtime.schedule.sequence import Sequence


@dataclass(slots=True)
class StepPlan:
    """Sequences of a step: those that decode, then those that feed `ends - num_computed` tokens."""

    decoding: list[Sequence]
    decode_rows: IntArray  # [decoding] of the block tables
    decode_ends: IntArray  # [decoding] tokens after the step
    prefilling: list[Sequence] = field(default_factory=list)
    prefill_ends: list[int] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    @property
    def sequences(self) -> list[Sequence]:
        """All sequences, in the order of the step."""
        return [*self.decoding, *self.prefilling]

    def mark_decodes(self, retention: Retention | None) -> None:
        """Mark the decodes that complete a logical block."""
        if retention is None:
            return
        for index in np.flatnonzero(self.decode_ends & (LOGICAL_BLOCK - 1) == 0).tolist():
            sequence = self.decoding[index]
            boundary = int(self.decode_ends[index])
            self.marks.append(Mark(index, boundary, 0, sequence.block_hashes()))

    def add_prefill(self, sequence: Sequence, end: int, marks: list[Mark]) -> None:
        """One more chunk, up to token `end`, with its marks."""
        for mark in marks:
            mark.index = len(self.decoding) + len(self.prefilling)
        self.prefilling.append(sequence)
        self.prefill_ends.append(end)
        self.marks += marks

    def record(self) -> StepRecord:
        """The step as the stepper takes it. Only a chunk that reaches the last token wants logits."""
        newest = [sequence.buffer[sequence.num_computed] for sequence in self.decoding]
        record = StepRecord(
            rows=self.decode_rows,
            lengths=np.ones(self.decode_rows.size, np.int32),
            token_ids=np.array(newest, np.int32),
            num_logits=np.ones(self.decode_rows.size, np.int32),
            num_decodes=self.decode_rows.size,
            marks=self.marks,
        )
        if self.prefilling:
            self._add_chunks(record)
        return record

    def _add_chunks(self, record: StepRecord) -> None:
        chunks = list(zip(self.prefilling, self.prefill_ends, strict=True))
        rows = [sequence.row for sequence in self.prefilling]
        lengths = [end - sequence.num_computed for sequence, end in chunks]
        wanted = [end == sequence.length for sequence, end in chunks]
        fed = [sequence.tokens[sequence.num_computed : end] for sequence, end in chunks]
        record.rows = np.concatenate([record.rows, np.array(rows, np.int32)])
        record.lengths = np.concatenate([record.lengths, np.array(lengths, np.int32)])
        record.num_logits = np.concatenate([record.num_logits, np.array(wanted, np.int32)])
        record.token_ids = np.concatenate([record.token_ids, *fed])


def chunk_marks(sequence: Sequence, end: int, retention: Retention | None) -> list[Mark]:
    """Marks of a chunk up to token `end`, as of a step in which it is alone."""
    if retention is None:
        return []
    hashes = sequence.block_hashes()
    boundaries = retention.boundaries(sequence.num_computed, end)
    return [Mark(0, at, nth, hashes) for nth, at in enumerate(boundaries)]
