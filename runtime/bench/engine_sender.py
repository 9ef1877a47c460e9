"""Gives requests to an `LLM` of this process, and keeps the time of each of its steps."""

from __future__ import annotations

import time
from array import array

from dsv4_trt.errors import Dsv4Error, QueueFull
from dsv4_trt.runtime.bench.ask import Ask
from dsv4_trt.runtime.bench.record import Record
from dsv4_trt.runtime.llm import LLM, SamplingParams
from dsv4_trt.runtime.metrics import STEP_SECONDS, Histogram


class StepTimes(Histogram):
    """A histogram of steps that keeps every value as well."""

    def __init__(self) -> None:
        super().__init__(STEP_SECONDS)
        self.values = array("d")

    def observe(self, value: float) -> None:
        """Count and keep one step's seconds."""
        super().observe(value)
        self.values.append(value)


class TimedLLM(LLM):
    """An `LLM` whose steps are timed one by one."""

    def time_steps(self) -> array[float]:
        """From here on the seconds of each step are put into the returned array."""
        times = StepTimes()
        self._thread.executor.metrics.step_seconds = times
        return times.values


class EngineSender:
    """A `Sender` into an `LLM`."""

    def __init__(self, llm: LLM, *, temperature: float = 1.0, ignore_eos: bool = False) -> None:
        self._llm = llm
        self._temperature, self._ignore_eos = temperature, ignore_eos

    async def send(self, ask: Ask, record: Record) -> None:
        """See `Sender`; the prompt has token ids."""
        assert ask.token_ids is not None, "prompts of an engine are token ids"
        params = SamplingParams(
            max_tokens=ask.max_tokens, temperature=self._temperature, ignore_eos=self._ignore_eos
        )
        record.sent = time.perf_counter()
        record.input_tokens, record.has_usage = len(ask.token_ids), True
        try:
            handle = self._llm.generate_async(ask.token_ids, params, streaming=True)
        except QueueFull as error:
            record.fail("queue full", str(error))
            record.ended = time.perf_counter()
            return
        output = handle.outputs[0]
        try:
            async for _ in handle:
                if tokens := output.length - output.num_seen:
                    record.arrive(time.perf_counter(), tokens)
        except Dsv4Error as error:
            record.fail(type(error).__name__, str(error))
        finally:
            handle.abort()  # nothing happens unless this was cancelled
        record.ended = time.perf_counter()
        record.cached_tokens, record.output_tokens = handle.cached_tokens, output.length
        record.finish_reason = output.finish_reason

    async def close(self) -> None:
        """Nothing is held."""
