"""The loop over steps: takes requests in, runs what the scheduler plans, samples, and tells the news.

`submit` and `cancel` may be called from any thread; `step` from one. Every accepted request ends with
exactly one update that says `finished`, whatever happens to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from threading import Lock
from typing import Any, Protocol

from dsv4_trt.errors import Dsv4Error, EngineFault, QueueFull, RequestError
from dsv4_trt.runtime.engine import Engine
from dsv4_trt.runtime.executor_config import ExecutorConfig
from dsv4_trt.runtime.generation import Generation, LiveRequest
from dsv4_trt.runtime.guided.compiler import Grammar, GrammarCompiler
from dsv4_trt.runtime.metrics import Metrics, PoolPages
from dsv4_trt.runtime.request import FinishReason, Request, no_grammar_for, no_text_for
from dsv4_trt.runtime.sampling.row_state import RowState, SampledToken
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.schedule.plan import StepPlan
from dsv4_trt.runtime.schedule.scheduler import ScheduleLimits, Scheduler
from dsv4_trt.runtime.schedule.sequence import Sequence, Status
from dsv4_trt.runtime.stepper import Stepper
from dsv4_trt.runtime.text.text_stream import TextStream
from dsv4_trt.runtime.update import Update


class TokenSampler(Protocol):
    """Turns logits into tokens; see `runtime.sampling.sampler.Sampler`."""

    def sample(self, logits: Any, rows: list[RowState]) -> list[SampledToken | Dsv4Error]: ...


class Executor:
    """Requests in, updates out, over one stepper."""

    def __init__(
        self,
        engine: Engine,
        sampler: TokenSampler,
        config: ExecutorConfig,
        *,
        new_text: Callable[[SamplingParams], TextStream] | None = None,
        grammars: GrammarCompiler | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take an engine over.

        `new_text` makes the text of a sequence, None = only token ids count; `grammars` compiles what
        guided decoding asks for, None = it is refused.

        Raises `ConfigError` for limits above the engine's, and `CapacityError` if its pools do not hold
        one sequence of `max_seq_len` in every step: nothing would be left to wait for.
        """
        config.check(engine)
        self.engine = engine
        self.stepper = Stepper(engine, tails_per_step=config.tails_per_step(engine.build))
        self.sampler = sampler
        self.config = config
        self.metrics = Metrics()
        self.clock = clock
        self._new_text = new_text
        self.grammars = grammars
        ladders = engine.ladders
        self.scheduler = Scheduler(
            self.stepper.kv,
            ScheduleLimits(
                max_num_seqs=config.max_num_seqs,
                max_num_tokens=config.max_num_tokens,
                decode_ladder=None if ladders is None else ladders.seqs,
            ),
            config.retention,
        )
        self._lock = Lock()
        self._arrived: list[Generation] = []
        self._cancelled: list[LiveRequest] = []
        self._num_arrived = 0
        self._live: dict[str, LiveRequest] = {}
        self._generations: dict[Sequence, Generation] = {}
        self._deadlines: list[tuple[float, int, LiveRequest]] = []  # the number settles ties
        self._untold: list[Update] = []  # still there if a step raises half way
        self._note_gauges()

    @property
    def has_work(self) -> bool:
        """Whether a step would do something."""
        return bool(self._live)

    def submit(self, request: Request) -> None:
        """Accept a request; raises `RequestError`, or `QueueFull` when it may come back later.

        With guided decoding this may take seconds, and may raise `MissingDependency`, for a grammar
        that was not asked for before.
        """
        request.check(self.engine)
        if self._new_text is None and request.params.stop:
            raise no_text_for(request.params)
        live = LiveRequest(request, self.clock())
        with self._lock:
            self._check_place(request)
        live.grammar = self._compile(request.params)
        sequence = self._begin(live, Sequence.begin(request)).sequence
        if self.config.retention is not None:
            sequence.block_hashes()  # outside the lock and the steps: a long prompt takes long
        with self._lock:
            self._check_place(request)
            self._live[request.request_id] = live
            self._num_arrived += 1
            sequence.arrival = self._num_arrived
            self._arrived.append(live.generations[0])
            self.metrics.requests_accepted += 1

    def cancel(self, request_id: str) -> None:
        """End a request at the next step; nothing happens if it has ended."""
        with self._lock:
            live = self._live.get(request_id)
            if live is not None:
                self._cancelled.append(live)

    def cancel_all(self) -> None:
        """End every request at the next step."""
        with self._lock:
            self._cancelled += self._live.values()

    def close(self) -> None:
        """End what runs beside the steps; a later request with a new grammar starts it again."""
        if self.grammars is not None:
            self.grammars.close()

    def abort(self, error: Exception) -> list[Update]:
        """End every request with an error: `step` raised, so nothing can be relied on any more."""
        self._take_arrivals()
        fault = _fault(error)
        for live in list(self._live.values()):
            self._end_request(live, "error", fault)
        self._note_gauges()
        return self._tell()

    def step(self) -> list[Update]:
        """Run one step, if there is something to run; returns the news."""
        self._take_arrivals()
        plan = self.scheduler.schedule()
        if plan is not None:
            self._note_starts(plan)
            started = self.clock()
            self._run(plan)
            self.metrics.steps += 1
            self.metrics.step_seconds.observe(self.clock() - started)
        self._note_gauges()
        return self._tell()

    @property
    def _num_waiting(self) -> int:
        """Sequences that do not run: new, forked without room, or preempted."""
        return len(self._arrived) + len(self.scheduler.waiting)

    def _tell(self) -> list[Update]:
        updates, self._untold = self._untold, []
        return updates

    def _check_place(self, request: Request) -> None:
        if request.request_id in self._live:
            raise RequestError(f"a request with the id '{request.request_id}' is running already")
        if self._num_waiting >= self.config.max_queue_size:
            self.metrics.requests_refused += 1
            raise QueueFull(
                f"{self._num_waiting} sequences wait, the queue holds {self.config.max_queue_size}; "
                "try again later, or raise max_queue_size"
            )

    def _take_arrivals(self) -> None:
        """Begin what was submitted, end what was cancelled or is too late."""
        with self._lock:
            arrived, self._arrived = self._arrived, []
            cancelled, self._cancelled = self._cancelled, []
        for generation in arrived:
            live, sequence = generation.request, generation.sequence
            self._generations[sequence] = generation
            self.scheduler.add(sequence)
            if live.request.deadline is not None:
                heappush(self._deadlines, (live.request.deadline, sequence.arrival, live))
        if len(self._deadlines) > 2 * len(self._live) + 64:  # most are of requests that have ended
            self._deadlines = [entry for entry in self._deadlines if entry[2].generations]
            heapify(self._deadlines)
        for live in cancelled:
            self._end_request(live, "cancelled")
        now = self.clock()
        while self._deadlines and self._deadlines[0][0] <= now:
            self._end_request(heappop(self._deadlines)[2], "timeout")

    def _compile(self, params: SamplingParams) -> Grammar | None:
        if params.guided_decoding is None:
            return None
        if self.grammars is None:
            raise no_grammar_for(params)
        return self.grammars.compile(params.guided_decoding)

    def _begin(self, live: LiveRequest, sequence: Sequence) -> Generation:
        params = live.request.params
        state = RowState(
            name=live.request.request_id,
            params=params,
            eos_token_id=self.engine.spec.eos_token_id,
            prompt_ids=live.request.prompt_ids,
            index=sequence.index,
        )
        text = None if self._new_text is None else self._new_text(params)
        guide = None if live.grammar is None else live.grammar.begin(params)
        generation = Generation(live, sequence, state, text, guide)
        live.generations.append(generation)
        live.num_begun += 1
        return generation

    def _run(self, plan: StepPlan) -> None:
        try:
            output = self.stepper.run(plan.record())
        except Exception as error:  # whatever an engine may raise, its requests end with it
            self._fail(plan.sequences, error)
            return
        self.scheduler.settle(plan)
        ready = [s for s in plan.prefilling if s.status is Status.DECODING]
        generations = [self._generations[s] for s in (*plan.decoding, *ready)]
        try:
            every, places = self._fork_siblings(generations)
            logits = output.logits if len(places) == len(generations) else output.logits[places]
            tokens = self.sampler.sample(logits, [g.row_state for g in every])
        except Exception as error:
            for live in dict.fromkeys(generation.request for generation in generations):
                self._end_request(live, "error", _fault(error))
            return
        for generation, token in zip(every, tokens, strict=True):
            self._untold.append(self._advance(generation, token))

    def _fork_siblings(self, generations: list[Generation]) -> tuple[list[Generation], list[int]]:
        """Begin the other sequences of requests whose prompt is done, from the same pages.

        Returns all generations that get a token, and which row of the logits each reads.
        """
        every, places = [], []
        for place, generation in enumerate(generations):
            live = generation.request
            every.append(generation)
            places.append(place)
            while live.num_begun < live.request.params.n:
                sibling = generation.sequence.sibling(live.num_begun)
                every.append(self._begin(live, sibling))
                self._generations[sibling] = every[-1]
                places.append(place)
                for copy in self.scheduler.fork(generation.sequence, sibling):
                    self.engine.copy_pages(*copy)
        return every, places

    def _advance(self, generation: Generation, token: SampledToken | Dsv4Error) -> Update:
        """What a sampled token means for its sequence."""
        if isinstance(token, Dsv4Error):
            return self._end(generation, "error", error=token)
        try:
            text, reason = generation.take(token)
        except Dsv4Error as error:
            return self._end(generation, "error", error=error)
        live = generation.request
        self.metrics.output_tokens += 1
        if not live.has_token:
            live.has_token = True
            self.metrics.ttft_seconds.observe(self.clock() - live.submitted)
        if reason is not None:
            return self._end(generation, reason, token=token, text=text, marks=generation.marks)
        return Update(
            request_id=live.request.request_id,
            index=generation.sequence.index,
            token=token,
            text=text,
            marks=generation.marks,
            num_cached=generation.sequence.num_cached,
        )

    def _end(self, generation: Generation, reason: FinishReason, **news: Any) -> Update:
        """A sequence ends; the last one of a request ends the request."""
        live, sequence = generation.request, generation.sequence
        self.scheduler.remove(sequence)
        del self._generations[sequence]
        live.generations.remove(generation)
        if live.reason != "error":
            live.reason = reason
        request_id = live.request.request_id
        if not live.generations:
            with self._lock:
                del self._live[request_id]
            self.metrics.count_finished(live.reason)
        return Update(
            request_id=request_id,
            index=sequence.index,
            finish_reason=reason,
            stop_reason=generation.stop_reason if reason == "stop" else None,
            num_cached=sequence.num_cached,
            finished=not live.generations,
            **news,
        )

    def _end_request(
        self, live: LiveRequest, reason: FinishReason, error: Dsv4Error | None = None
    ) -> None:
        """End what is left of a request; another one may have its id by now."""
        for generation in list(live.generations):
            self._untold.append(self._end(generation, reason, error=error))

    def _fail(self, sequences: Iterable[Sequence], error: Exception) -> None:
        """The engine failed in a step: its sequences end, others go on."""
        fault = _fault(error)
        for sequence in sequences:
            self._untold.append(self._end(self._generations[sequence], "error", error=fault))

    def _note_starts(self, plan: StepPlan) -> None:
        """Count prompts and hits, and the time in the queue, when a request first runs."""
        for sequence in plan.prefilling:
            live = self._generations[sequence].request
            if not live.has_started:
                live.has_started = True
                self.metrics.queue_seconds.observe(self.clock() - live.submitted)
                self.metrics.prompt_tokens += sequence.num_prompt
                self.metrics.cached_tokens += sequence.num_cached or 0

    def _note_gauges(self) -> None:
        self.metrics.preemptions = self.scheduler.num_preempted
        self.metrics.waiting = self._num_waiting
        self.metrics.running = self.scheduler.num_running
        self.metrics.pages = {
            bucket: PoolPages(held=pool.num_held, cached=pool.num_cached, free=pool.num_free)
            for bucket, pool in self.stepper.pools.items()
        }


def _fault(error: Exception) -> Dsv4Error:
    if isinstance(error, Dsv4Error):
        return error
    fault = EngineFault(
        f"the engine failed in this step ({type(error).__name__}: {error}); the request has ended, "
        "run it again"
    )
    fault.__cause__ = error
    return fault
