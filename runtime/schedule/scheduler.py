"""Decides step by step which sequences run, within the tokens of a step, the rows and the pages.

Every running sequence that decodes feeds its token; what is left of the step's tokens goes to prompts, in
order (priority, then arrival). Nobody overtakes: if the first in the queue has no room, the queue
waits. A sequence is admitted when the pages of its whole prompt are there, so that prompts do not starve
each other half way; output grows into what is free, and where that is not enough the last in order is
preempted: it gives up its pages and computes its tokens again later, from the newest cached boundary.

A running prompt keeps its claim on the pages of what is still to come. Invariant: a sequence of the longest
allowed length fits into the empty pools (`check_plan`), and what comes later gives way to a prompt, so the
first in order always runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsv4_trt.errors import CapacityError
from dsv4_trt.kv_layout import LOGICAL_BLOCK, Bucket
from dsv4_trt.ladder import Ladder
from dsv4_trt.runtime.kv.cache import KvCache, PageCopy
from dsv4_trt.runtime.kv.prefix_cache import Tail
from dsv4_trt.runtime.kv.retention import Retention
from dsv4_trt.runtime.schedule.admission import Admission
from dsv4_trt.runtime.schedule.demand import Demand, Need, add
from dsv4_trt.runtime.schedule.plan import StepPlan, chunk_marks
from dsv4_trt.runtime.schedule.sequence import NO_ROW, Sequence, Status, rows_of
from dsv4_trt.runtime.schedule.waiting import WaitingQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleLimits:
    """What one step may hold."""

    max_num_seqs: int
    max_num_tokens: int
    decode_ladder: Ladder | None = None  # decodes are padded to its rungs, which costs tokens


class Scheduler:
    """The queue, the running sequences and their pages."""

    def __init__(self, kv: KvCache, limits: ScheduleLimits, retention: Retention | None) -> None:
        self.kv = kv
        self.limits = limits
        self.retention = retention  # None = no prefix cache
        self.waiting = WaitingQueue()
        self.decoding: list[Sequence] = []
        self.prefilling: list[Sequence] = []
        self.num_preempted = 0
        self._demand = Demand(kv.classes)
        self._admission = Admission(kv, self._demand, retention)

    @property
    def num_running(self) -> int:
        """Sequences that have a row."""
        return len(self.decoding) + len(self.prefilling)

    @property
    def running(self) -> list[Sequence]:
        """All sequences that have a row."""
        return [*self.decoding, *self.prefilling]

    def add(self, sequence: Sequence) -> None:
        """A new sequence waits for its turn."""
        self.waiting.push(sequence)

    def remove(self, sequence: Sequence) -> None:
        """A sequence ends, wherever it is; its pages stay cached where the policy says so."""
        if sequence.status is Status.WAITING:
            self.waiting.remove(sequence)
        elif sequence.status is not Status.FINISHED:
            self._leave(sequence)
        for tail in (sequence.prompt_tail, sequence.output_tail):
            if tail is not None:
                self.kv.prefix.touch(tail)
        sequence.status = Status.FINISHED

    def schedule(self) -> StepPlan | None:
        """The next step, or None if nothing runs and nothing waits."""
        while self.num_running or self.waiting:
            self._make_way()
            need = self._make_prompt_fit(self._make_decodes_fit())
            plan = self._plan_decodes()
            self._plan_prefills(plan, need)
            if plan.decoding or plan.prefilling:
                return plan
            self.preempt(self._last())  # prompts that are half way hold all pages
        return None

    def settle(self, plan: StepPlan) -> None:
        """The step has run: the sequences have computed what it fed."""
        for sequence in plan.decoding:
            sequence.num_computed += 1
        for sequence, end in zip(plan.prefilling, plan.prefill_ends, strict=True):
            sequence.num_computed, sequence.has_fed = end, True
            if end == sequence.length:
                sequence.status = Status.DECODING
                self.prefilling.remove(sequence)
                self.decoding.append(sequence)
        sequences = plan.sequences
        for mark in plan.marks:
            if mark.tail is not None:
                self._replace_tail(sequences[mark.index], mark.tail)

    def fork(self, sequence: Sequence, sibling: Sequence) -> list[PageCopy]:
        """Let `sibling` decode from where `sequence` is; returns the copies to run before that.

        Where there is no room it waits and computes the prompt itself.
        """
        if self._has_row():
            try:
                row, copies = self.kv.fork(sequence.row)
            except CapacityError:
                pass
            else:
                sibling.status, sibling.row = Status.DECODING, row
                sibling.num_computed, sibling.num_cached = (
                    sequence.num_computed,
                    sequence.num_cached,
                )
                self.decoding.append(sibling)
                return copies
        self.add(sibling)
        return []

    def _make_way(self) -> None:
        """Preempt sequences of lower priority if that lets the first in the queue run."""
        head = self.waiting.peek()
        if head is None or self._admission.is_blocked(head):
            return
        lower = [s for s in self.running if s.request.priority < head.request.priority]
        if not lower:
            return
        upper = [s for s in self.running if s.request.priority >= head.request.priority]
        freed = add(*(self._demand.held(s.num_computed) for s in lower))
        if not self._admission.has_room_beside(head, upper, freed):
            return
        nothing = dict.fromkeys(Bucket, 0)
        for victim in sorted(lower, key=lambda s: s.order, reverse=True):
            if self._has_row() and self._admission.has_room_beside(head, self.running, nothing):
                return
            self.preempt(victim)

    def _has_row(self) -> bool:
        return self.num_running < self.limits.max_num_seqs and self.kv.num_free_rows > 0

    def _make_decodes_fit(self) -> Need:
        """Preempt until every decoding sequence can feed its token; returns the pages that takes."""
        while True:
            need = self._decode_need()
            if self.kv.has_room(need):
                return need
            self.preempt(self._last())

    def _make_prompt_fit(self, need: Need) -> Need:
        """Preempt what comes after the first running prompt until its next chunk has room."""
        while self.prefilling and self._budget() > 0:
            first = min(self.prefilling, key=lambda s: s.order)
            end = self._chunk_end(first, self._budget())
            last = self._last()
            if last is first or self.kv.has_room(add(need, self._chunk_need(first, end))):
                break
            self.preempt(last)
            need = self._make_decodes_fit()
        return need

    def _decode_need(self) -> Need:
        """Pages that the decodes take; an upper bound where that is enough to know."""
        if not (self.prefilling or self.waiting):
            most = self._demand.most_for_decodes(len(self.decoding))
            if self.kv.has_room(most):
                return most
        rows = rows_of(self.decoding)
        return self.kv.need(rows, self.kv.num_tokens[rows] + 1)

    def _plan_decodes(self) -> StepPlan:
        rows = rows_of(self.decoding)
        plan = StepPlan(list(self.decoding), rows, self.kv.num_tokens[rows] + 1)
        plan.mark_decodes(self.retention)
        return plan

    def _plan_prefills(self, plan: StepPlan, need: Need) -> None:
        """Chunks of prompts, in order, as long as the step has tokens and pages for them."""
        budget = self._budget()
        running = sorted(self.prefilling, key=lambda s: s.order, reverse=True)
        admits = True
        while budget > 0:
            head = self.waiting.peek() if admits else None
            if head is not None and (not running or head.order < running[-1].order):
                ends = self._ends(plan)
                taken = add(need, self._claimed(ends))
                tokens = np.concatenate([plan.decode_ends, np.array(ends, np.int32)])
                admits = self._has_row() and self._admission.admit(head, taken, tokens)
                if admits:
                    self.waiting.remove(head)
                    self.prefilling.append(head)
                    running.append(head)
                continue
            if not running:
                return
            fed = self._plan_chunk(plan, running.pop(), budget, need)
            admits = admits and fed > 0
            budget -= fed

    def _plan_chunk(self, plan: StepPlan, sequence: Sequence, budget: int, need: Need) -> int:
        """Add a sequence's next chunk if its pages are there; returns how many tokens it feeds."""
        end = self._chunk_end(sequence, budget)
        more = add(need, self._chunk_need(sequence, end))
        if not self.kv.has_room(more):
            return 0
        need.update(more)
        plan.add_prefill(sequence, end, chunk_marks(sequence, end, self.retention))
        return end - sequence.num_computed

    def _chunk_need(self, sequence: Sequence, end: int) -> Need:
        """Pages that a chunk up to token `end` takes."""
        marks = chunk_marks(sequence, end, self.retention)
        return self.kv.need(rows_of([sequence]), np.array([end], np.int32), marks)

    def _chunk_end(self, sequence: Sequence, budget: int) -> int:
        """Where a chunk ends: at a logical block if it is not the last one.

        Of a prompt in several chunks, the last one also stops at the last boundary before its end: the
        window there stays for later hits, and a chunk that went on would hold three windows at once.
        """
        start, length = sequence.num_computed, sequence.length
        end = min(length, start + budget)
        boundary = end // LOGICAL_BLOCK * LOGICAL_BLOCK
        stops = end < length or (sequence.has_fed and self.retention is not None)
        return boundary if stops and boundary > start else end

    def _budget(self) -> int:
        """Tokens of the step that decodes leave."""
        decodes, ladder = len(self.decoding), self.limits.decode_ladder
        padded = ladder.rung(decodes) if ladder is not None and decodes else decodes
        return self.limits.max_num_tokens - padded

    def _ends(self, plan: StepPlan) -> list[int]:
        """What each running prompt holds once the step, as planned so far, has run."""
        fed = dict(zip(plan.prefilling, plan.prefill_ends, strict=True))
        return [fed.get(sequence, sequence.num_computed) for sequence in self.prefilling]

    def _claimed(self, ends: list[int]) -> Need:
        """Pages that running prompts were admitted for and will take in later steps."""
        claims = [
            self._demand.to_finish_prompt(end, sequence.length)
            for sequence, end in zip(self.prefilling, ends, strict=True)
            if end < sequence.length
        ]
        return add(dict.fromkeys(Bucket, 0), *claims)

    def _last(self) -> Sequence:
        """The running sequence that is last in order."""
        return max(self.running, key=lambda s: s.order)

    def preempt(self, victim: Sequence) -> None:
        """A running sequence gives up its pages and waits again."""
        self._leave(victim)
        victim.status, victim.num_computed, victim.was_preempted = Status.WAITING, 0, True
        self.waiting.push(victim)
        self.num_preempted += 1

    def _leave(self, sequence: Sequence) -> None:
        running = self.decoding if sequence.status is Status.DECODING else self.prefilling
        running.remove(sequence)
        self.kv.close(sequence.row)
        sequence.row = NO_ROW

    def _replace_tail(self, sequence: Sequence, tail: Tail) -> None:
        """A sequence reached a tail; the one before, of the prompt or of the output, may go."""
        assert self.retention is not None
        prefix = self.kv.prefix
        prefix.use(tail, sequence.key)
        if tail.num_tokens <= sequence.num_prompt:
            prefix.replace(sequence.prompt_tail, tail, self.retention)
            sequence.prompt_tail = tail
        else:
            prefix.replace(sequence.output_tail, tail, self.retention)
            sequence.output_tail = tail
