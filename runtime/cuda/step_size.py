"""How large a step is, and how large steps of a build get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dsv4_trt.contract import BuildSpec
from dsv4_trt.runtime.batch import StepBatch
from dsv4_trt.runtime.cuda.rungs import most_tokens, step_ladders


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
        """The graph's run-time sizes."""
        return {
            "num_tokens": self.num_tokens,
            "num_seqs": self.num_seqs,
            "num_seqs_plus_1": self.num_seqs + 1,
            "num_logits": self.num_logits,
            "num_decodes": self.num_decodes,
        }


def largest_step(build: BuildSpec) -> StepSize:
    """The most of everything; logits as a serving step wants them, one row a sequence."""
    seqs = build.max_batch_size
    return StepSize(most_tokens(build), seqs, seqs, seqs)


def step_sizes(build: BuildSpec) -> Iterator[StepSize]:
    """A size of each rung: decodes alone, and prompts with and without decodes beside them."""
    ladders, most = step_ladders(build), most_tokens(build)
    for rung in ladders.seqs.rungs:
        yield StepSize(rung, rung, rung, rung)
    for tokens in ladders.tokens.rungs:
        if tokens <= most:
            seqs = min(tokens, build.max_batch_size)
            yield StepSize(tokens, seqs, seqs, seqs)
            yield StepSize(tokens, seqs, 0, seqs)
