"""Runs steps: turns chunks of sequences into a batch, calls the engine, commits the KV pages."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceABC
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dsv4_trt.errors import CapacityError, RequestError
from dsv4_trt.runtime.batch import IntArray, StepBatch, StepOutput
from dsv4_trt.runtime.engine import Engine
from dsv4_trt.runtime.kv.cache import Advance, KvCache, PreparedStep, SequencePages

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The tokens one sequence feeds in a step, starting where its pages end."""

    pages: SequencePages
    token_ids: SequenceABC[int]
    all_logits: bool = False  # of every token instead of the last one


class Stepper:
    """An engine and the pages of the sequences it runs.

    Sequences that live at the same time share one stepper: two would hand out the same pages, so a
    new one takes the engine from the one before it.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.kv = KvCache(engine.plan)
        engine.owner = self

    def step(self, chunks: SequenceABC[Chunk], *, want_streams: bool = False) -> StepOutput:
        """Run one step; logits rows follow the order of `chunks`, decodes must come first.

        Raises `CapacityError` where a limit would be passed and `RequestError` for a chunk without
        tokens or with one that is not in the vocabulary. Whatever is raised, nothing has changed.
        """
        with self._running(chunks) as batch:
            return self.engine.step(batch, want_streams=want_streams)

    def step_mtp(self, chunks: SequenceABC[Chunk], streams: torch.Tensor) -> StepOutput:
        """Run one MTP step on `streams [num_tokens, hc_mult, hidden]` of the same tokens.

        The chunks' pages come from `kv.open(mtp=True)`.
        """
        with self._running(chunks) as batch:
            return self.engine.step_mtp(batch, streams)

    @contextmanager
    def _running(self, chunks: SequenceABC[Chunk]) -> Iterator[StepBatch]:
        """The batch of a step; its pages are kept if the step ran and given back if it did not."""
        batch, prepared = self._prepare(chunks)
        try:
            yield batch
        except BaseException:
            self.kv.rollback(prepared)
            raise
        self.kv.commit(prepared)

    def _prepare(self, chunks: SequenceABC[Chunk]) -> tuple[StepBatch, PreparedStep]:
        assert self.engine.owner is self, "this engine's pages belong to a stepper made later"
        self._check(chunks)
        token_ids = _token_ids(chunks, self.engine.spec.vocab_size)
        advances = [Advance(c.pages, c.pages.num_tokens + len(c.token_ids)) for c in chunks]
        prepared = self.kv.prepare(advances)
        lengths = np.array([len(c.token_ids) for c in chunks], np.int32)
        ends = np.array([a.end for a in advances], np.int32)
        query_start = np.zeros(len(chunks) + 1, np.int32)
        np.cumsum(lengths, out=query_start[1:])
        rows = [
            np.arange(start, end) if chunk.all_logits else np.arange(end - 1, end)
            for chunk, start, end in zip(chunks, query_start[:-1], query_start[1:], strict=True)
        ]
        offsets = np.repeat(ends - query_start[1:], lengths)
        batch = StepBatch(
            token_ids=token_ids,
            positions=(np.arange(query_start[-1]) + offsets).astype(np.int32),
            seq_ids=np.repeat(np.arange(len(chunks), dtype=np.int32), lengths),
            query_start=query_start,
            seq_lens=ends,
            table_rows=np.arange(len(chunks), dtype=np.int32),
            logits_rows=np.concatenate(rows).astype(np.int32),
            num_decodes=_leading_decodes(chunks),
            block_tables=prepared.block_tables,
            slot_mappings=prepared.slot_mappings,
        )
        return batch, prepared

    def _check(self, chunks: SequenceABC[Chunk]) -> None:
        if not chunks or not all(len(chunk.token_ids) for chunk in chunks):
            raise RequestError(
                f"a step feeds {[len(c.token_ids) for c in chunks]} tokens to its sequences; expected "
                "at least one sequence and one token for each"
            )
        build = self.engine.build
        limits = {
            "max_batch_size": (len(chunks), build.max_batch_size, "sequences"),
            "max_num_tokens": (
                sum(len(c.token_ids) for c in chunks),
                build.max_num_tokens,
                "tokens",
            ),
            "max_seq_len": (
                max(c.pages.num_tokens + len(c.token_ids) for c in chunks),
                build.max_seq_len,
                "tokens in a sequence",
            ),
        }
        for name, (found, limit, what) in limits.items():
            if found > limit:
                raise CapacityError(
                    f"a step with {found} {what} is above the engine's {name} {limit}; build with "
                    f"a larger --{name}"
                )


def _token_ids(chunks: SequenceABC[Chunk], vocab_size: int) -> IntArray:
    """All chunks' tokens, checked before anything is allocated."""
    token_ids = np.concatenate([np.asarray(chunk.token_ids) for chunk in chunks])
    if token_ids.dtype.kind not in "iu" or token_ids.min() < 0 or token_ids.max() >= vocab_size:
        wrong = [t for t in token_ids.tolist() if type(t) is not int or not 0 <= t < vocab_size]
        raise RequestError(
            f"a step feeds the token id {wrong[0]!r}; the vocabulary is 0 to {vocab_size - 1}"
        )
    return token_ids.astype(np.int32)


def _leading_decodes(chunks: SequenceABC[Chunk]) -> int:
    """How many leading sequences continue with a single token; the rest are prefill chunks."""
    count = 0
    for chunk in chunks:
        if len(chunk.token_ids) != 1 or chunk.pages.num_tokens == 0:
            break
        count += 1
    return count
