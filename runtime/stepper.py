"""Runs steps: turns what sequences feed into a batch, calls the engine, commits the KV pages."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceABC
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dsv4_trt.errors import CapacityError, RequestError
from dsv4_trt.kv_layout import CacheClass
from dsv4_trt.runtime.batch import IntArray, StepBatch, StepOutput, StepRecord
from dsv4_trt.runtime.engine import Engine
from dsv4_trt.runtime.kv.cache import KvCache, TableSize
from dsv4_trt.runtime.kv.pool import PagePool
from dsv4_trt.runtime.kv.prefix_cache import PrefixCache
from dsv4_trt.runtime.step_arrays import StepArrays

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The tokens one sequence feeds in a step, starting where its pages end."""

    row: int  # from `kv.open`
    token_ids: SequenceABC[int]
    all_logits: bool = False  # of every token instead of the last one


class Stepper:
    """An engine and the pages of the sequences it runs: those of the trunk and of the MTP block.

    Sequences that live at the same time share one stepper: two would hand out the same pages, so a
    new one takes the engine from the one before it.
    """

    def __init__(self, engine: Engine, *, tails_per_step: int = 1) -> None:
        self.engine = engine
        build, layout = engine.build, engine.layout
        self.pools = {bucket: PagePool(bucket, n) for bucket, n in engine.plan.num_pages.items()}
        self.prefix = PrefixCache(
            self.pools, {kv.cache_class: kv.bucket for kv in layout.classes.values()}
        )
        size = TableSize(
            max_seqs=build.max_batch_size,
            max_seq_len=build.max_seq_len,
            tails_per_step=tails_per_step,
        )
        trunk = [kv for kv in layout.classes.values() if kv.cache_class is not CacheClass.MTP_SWA]
        mtp = [kv for kv in layout.classes.values() if kv.cache_class is CacheClass.MTP_SWA]
        self.kv = KvCache(trunk, self.pools, self.prefix, size)
        self.mtp_kv = KvCache(mtp, self.pools, self.prefix, size)
        limits = (build.max_batch_size, build.max_num_tokens, engine.ladders)
        self._trunk = StepArrays(self.kv, *limits)
        self._mtp = StepArrays(self.mtp_kv, *limits)
        # not the stepper itself: the two would keep each other, and a GPU's memory, until a collection
        self._claim = engine.owner = object()

    def warm_up(self) -> Iterator[int]:
        """Prepare the engine for decode steps, one rung of its ladder after another; gives each rung."""
        ladders = self.engine.ladders
        for rung in reversed(ladders.seqs.rungs) if ladders is not None else ():
            self.engine.warm_up(self._trunk.padding(rung))
            yield rung

    def step(self, chunks: SequenceABC[Chunk], *, want_streams: bool = False) -> StepOutput:
        """Run one step; logits rows follow the order of `chunks`, decodes must come first.

        Raises `CapacityError` where a limit would be passed and `RequestError` for a chunk without
        tokens or with one that is not in the vocabulary. Whatever is raised, nothing has changed.
        """
        return self.run(self._record(self.kv, chunks), want_streams=want_streams)

    def step_mtp(self, chunks: SequenceABC[Chunk], streams: torch.Tensor) -> StepOutput:
        """Run one MTP step on `streams [num_tokens, hc_mult, hidden]` of the same tokens.

        The chunks' rows come from `mtp_kv.open()`.
        """
        record = self._record(self.mtp_kv, chunks)
        with self._running(self._mtp, record) as batch:
            output = self.engine.step_mtp(batch, streams)
        return _without_padding(output, record)

    def run(self, record: StepRecord, *, want_streams: bool = False) -> StepOutput:
        """Run one step that was checked before; see `step`."""
        with self._running(self._trunk, record) as batch:
            output = self.engine.step(batch, want_streams=want_streams)
        return _without_padding(output, record)

    @contextmanager
    def _running(self, arrays: StepArrays, record: StepRecord) -> Iterator[StepBatch]:
        """The batch of a step; its pages are kept if the step ran and given back if it did not."""
        assert self.engine.owner is self._claim, (
            "this engine's pages belong to a stepper made later"
        )
        kv = arrays.kv
        ends = kv.num_tokens[record.rows] + record.lengths
        prepared = kv.prepare(record.rows, ends, record.marks)
        try:
            yield arrays.fill(record, prepared)
        except BaseException:
            kv.rollback(prepared)
            raise
        kv.commit(prepared)

    def _record(self, kv: KvCache, chunks: SequenceABC[Chunk]) -> StepRecord:
        self._check(kv, chunks)
        lengths = np.array([len(chunk.token_ids) for chunk in chunks], np.int32)
        every = np.array([chunk.all_logits for chunk in chunks])
        return StepRecord(
            rows=np.array([chunk.row for chunk in chunks], np.int32),
            lengths=lengths,
            token_ids=_token_ids(chunks, self.engine.spec.vocab_size),
            num_logits=np.where(every, lengths, np.int32(1)),
            num_decodes=_leading_decodes(kv, chunks),
        )

    def _check(self, kv: KvCache, chunks: SequenceABC[Chunk]) -> None:
        if not chunks or not all(len(chunk.token_ids) for chunk in chunks):
            raise RequestError(
                f"a step feeds {[len(c.token_ids) for c in chunks]} tokens to its sequences; expected "
                "at least one sequence and one token for each"
            )
        once = {chunk.row for chunk in chunks}
        assert len(once) == len(chunks), f"a step of {len(chunks)} chunks of {len(once)} sequences"
        assert all(kv.is_open(row) for row in once), f"a step of a closed sequence, rows {once}"
        build = self.engine.build
        total = sum(len(chunk.token_ids) for chunk in chunks)
        longest = max(int(kv.num_tokens[c.row]) + len(c.token_ids) for c in chunks)
        for name, found, limit, what in (
            ("max_num_tokens", total, build.max_num_tokens, "tokens"),
            ("max_seq_len", longest, build.max_seq_len, "tokens in a sequence"),
        ):
            if found > limit:
                raise CapacityError(
                    f"a step with {found} {what} is above the engine's {name} {limit}; build with "
                    f"a larger --{name}"
                )


def _without_padding(output: StepOutput, record: StepRecord) -> StepOutput:
    output.logits = output.logits[: int(record.num_logits.sum())]
    return output


def _token_ids(chunks: SequenceABC[Chunk], vocab_size: int) -> IntArray:
    """All chunks' tokens, checked before anything is allocated."""
    token_ids = np.concatenate([np.asarray(chunk.token_ids) for chunk in chunks])
    if token_ids.dtype.kind not in "iu" or token_ids.min() < 0 or token_ids.max() >= vocab_size:
        wrong = [t for t in token_ids.tolist() if type(t) is not int or not 0 <= t < vocab_size]
        raise RequestError(
            f"a step feeds the token id {wrong[0]!r}; the vocabulary is 0 to {vocab_size - 1}"
        )
    return token_ids.astype(np.int32)


def _leading_decodes(kv: KvCache, chunks: SequenceABC[Chunk]) -> int:
    """How many leading sequences continue with a single token; the rest are prefill chunks."""
    count = 0
    for chunk in chunks:
        if len(chunk.token_ids) != 1 or kv.num_tokens[chunk.row] == 0:
            break
        count += 1
    return count
