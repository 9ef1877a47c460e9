"""A step padded in every size, as a graph of a larger rung runs it, gives the logits of the bare step."""

from dataclasses import replace

import numpy as np
import torch

from dsv4_trt.runtime.stepper import Chunk, Stepper
from tests.workshop import random_ids

LIMIT = 1e-4  # logits; scale about 3
TOKENS, SEQS, DECODES, LOGITS, PAGES = 9, 5, 3, 4, 2  # of padding


def with_rows(array, decodes, fill, more):
    """`array` with DECODES padding rows after the decodes and `more` at the end."""
    middle, end = np.full(DECODES, fill, np.int32), np.full(more, fill, np.int32)
    return np.concatenate([array[:decodes], middle, array[decodes:], end])


def padded_table(table, kv):
    width = PAGES if kv.window is None else 0
    return np.pad(table, [(0, 0), (0, SEQS), (0, width)], constant_values=-1)


def padded(batch, layout):
    """The batch with padding after the decodes, after the prefill chunks, and in the block tables."""
    decodes = batch.num_decodes
    own = np.diff(batch.query_start)
    rows = np.concatenate([with_rows(own, decodes, 1, 0), np.zeros(SEQS, np.int32)])
    after = batch.logits_rows >= decodes
    return replace(
        batch,
        token_ids=with_rows(batch.token_ids, decodes, 0, TOKENS),
        positions=with_rows(batch.positions, decodes, 0, TOKENS),
        seq_ids=with_rows(
            batch.seq_ids + DECODES * (batch.seq_ids >= decodes).astype(np.int32),
            decodes,
            -1,
            TOKENS,
        ),
        query_start=np.concatenate([[0], np.cumsum(rows)]).astype(np.int32),
        seq_lens=with_rows(batch.seq_lens, decodes, 0, SEQS),
        table_rows=with_rows(batch.table_rows, decodes, 0, SEQS),
        logits_rows=np.pad(batch.logits_rows + DECODES * after.astype(np.int32), (0, LOGITS)),
        num_decodes=decodes + DECODES,
        block_tables={
            cls: padded_table(table, layout[cls]) for cls, table in batch.block_tables.items()
        },
        slot_mappings={
            cls: with_rows(slots, decodes, -1, TOKENS) for cls, slots in batch.slot_mappings.items()
        },
    )


class PaddedStepper(Stepper):
    """Runs every step padded and drops the padding's logits."""

    def step(self, chunks):
        with self._running(chunks) as batch:
            output = self.engine.step(padded(batch, self.kv.layout))
        return replace(output, logits=output.logits[: len(batch.logits_rows)])


def run(stepper):
    """Prefill of three sequences, decodes alone, and decodes with a fourth sequence's chunks."""
    pages = [stepper.kv.open() for _ in range(4)]
    first = [
        Chunk(pages=held, token_ids=random_ids(130 + n, seed=n)) for n, held in enumerate(pages[:3])
    ]
    steps = [first]
    for late in (None, random_ids(50, seed=8), random_ids(90, seed=9), None):
        chunks = [Chunk(pages=held, token_ids=[7 + len(steps)]) for held in pages[:3]]
        if late is not None:
            chunks.append(Chunk(pages=pages[3], token_ids=late))
        steps.append(chunks)
    return [stepper.step(chunks).logits for chunks in steps]


def test_padding_changes_nothing(workshop, tiny_a):
    engine = workshop.engine(tiny_a, lens=(640, 640, 640, 640))
    for found, expected in zip(run(PaddedStepper(engine)), run(Stepper(engine)), strict=True):
        torch.testing.assert_close(found, expected, atol=LIMIT, rtol=0)
