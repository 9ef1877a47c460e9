"""How large a step is, and how large steps of a build get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dsv4_trt.contract import BuildSpec
from dsv4_trt.graph import Value
from dsv4_trt.runtime.batch import StepBatch
from dsv4_trt.step_ladders import step_ladders


class StepSize(NamedTuple):
    """Numbers of rows, with padding."""

    num_tokens: int
    num_seqs: int
    num_decodes: int
    num_logits: int

    @classmethod
    def of(cls, batch: StepBatch) -> StepSize:
        """The size of a padded batch."""
        seqs, logits = batch.seq_lens.size, batch.logits_rows.size
        return cls(batch.token_ids.size, seqs, batch.num_decodes, logits)

    @property
    def is_decode(self) -> bool:
        """Whether every row is a decoding sequence whose logits are wanted."""
        return self.num_tokens == self.num_seqs == self.num_decodes == self.num_logits

    def by_name(self) -> dict[str, int]:
        """The graph's run-time sizes, in the order of `SIZE_NAMES`."""
        return dict(zip(SIZE_NAMES, (*self, self.num_seqs + 1), strict=True))

    def shape(self, value: Value) -> tuple[int, ...]:
        """A value's shape in such a step; 0 where it is not the step that says it: tables and pools."""
        sizes = self.by_name()
        return tuple(dim if isinstance(dim, int) else sizes.get(dim, 0) for dim in value.shape)


SIZE_NAMES = (*StepSize._fields, "num_seqs_plus_1")  # as graphs call their run-time sizes


def largest_step(build: BuildSpec) -> StepSize:
    """The most of everything: token rows of `max_num_tokens`, or of all sequences at their longest.

    Logits are those that a serving step wants, one row a sequence.
    """
    seqs = build.max_batch_size
    rows = seqs * build.max_seq_len + seqs  # with padding decodes
    tokens = step_ladders(build).tokens.rung(min(rows, build.max_num_tokens))
    return StepSize(tokens, seqs, seqs, seqs)


def step_sizes(build: BuildSpec) -> Iterator[StepSize]:
    """A size of each rung: decodes alone, and prompts with and without decodes beside them."""
    ladders, most = step_ladders(build), largest_step(build).num_tokens
    for rung in ladders.seqs.rungs:
        yield StepSize(rung, rung, rung, rung)
    for tokens in ladders.tokens.rungs:
        if tokens <= most:
            seqs = min(tokens, build.max_batch_size)
            yield StepSize(tokens, seqs, seqs, seqs)
            yield StepSize(tokens, seqs, 0, seqs)
