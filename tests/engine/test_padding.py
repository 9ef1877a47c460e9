"""A step padded in every size, as a graph of a larger rung runs it, gives the logits of the bare step."""

import torch

from dsv4_trt.ladder import Ladder, StepLadders
from dsv4_trt.runtime.stepper import Chunk, Stepper
from tests.workshop import random_ids

LIMIT = 1e-4  # logits; scale about 3
LADDERS = StepLadders(seqs=Ladder((6, 64)), tokens=Ladder((9, 75, 1000, 2048)))


class Recorded:
    """An engine that pads, and notes the sizes it was asked for."""

    def __init__(self, engine):
        self.engine, self.sizes, self.owner = engine, [], None
        self.ladders = LADDERS

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def step(self, batch, *, want_streams=False):
        sizes = (
            batch.num_decodes,
            len(batch.seq_lens),
            len(batch.token_ids),
            len(batch.logits_rows),
        )
        self.sizes.append(sizes)
        return self.engine.step(batch, want_streams=want_streams)


def run(stepper):
    """Prefill of three sequences, decodes alone, and decodes with a fourth sequence's chunks."""
    rows = [stepper.kv.open() for _ in range(4)]
    steps = [[Chunk(row=row, token_ids=random_ids(130 + row, seed=row)) for row in rows[:3]]]
    for late in (None, random_ids(50, seed=8), random_ids(90, seed=9), None):
        chunks = [Chunk(row=row, token_ids=[7 + len(steps)]) for row in rows[:3]]
        if late is not None:
            chunks.append(Chunk(row=rows[3], token_ids=late, all_logits=len(late) == 50))
        steps.append(chunks)
    return [stepper.step(chunks).logits for chunks in steps]


def test_padding_changes_nothing(workshop, tiny_a):
    engine = workshop.engine(tiny_a, lens=(640, 640, 640, 640))
    padded = Recorded(engine)
    for found, expected in zip(run(Stepper(padded)), run(Stepper(engine)), strict=True):
        torch.testing.assert_close(found, expected, atol=LIMIT, rtol=0)
    decode, mixed = (6, 6, 9, 6), (6, 64, 75, 64)
    assert padded.sizes == [(0, 6, 1000, 6), decode, mixed, (6, 64, 1000, 6), decode]
