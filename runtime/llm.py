"""The Python API, in the names of TensorRT-LLM's: an engine that many callers share.

    with LLM("demo/engine") as llm:
        print(llm.generate("The sky is", SamplingParams(max_tokens=8)).outputs[0].text)

The executor runs in a thread of its own. All methods may be called from any thread and from coroutines.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

from dsv4_trt.contract import BuildSpec
from dsv4_trt.errors import ConfigError, QueueFull
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.completion_output import CompletionOutput, Logprob
from dsv4_trt.runtime.engine import CanProfile
from dsv4_trt.runtime.executor_thread import ExecutorThread
from dsv4_trt.runtime.kv_cache_config import KvCacheConfig, check_whole
from dsv4_trt.runtime.llm_inputs import (
    Checked,
    ManyPrompts,
    OnePrompt,
    check_timeout,
    is_batch,
    pair_inputs,
    read_request,
)
from dsv4_trt.runtime.llm_open import choose_bundle, choose_tokenizer, limit_sizes, open_executor
from dsv4_trt.runtime.request import Request
from dsv4_trt.runtime.request_output import RequestOutput
from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.text.prompt import Prompt
from dsv4_trt.runtime.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from dsv4_trt.runtime.cuda.profile import Profiler

__all__ = [
    "LLM",
    "CompletionOutput",
    "GuidedDecodingParams",
    "KvCacheConfig",
    "Logprob",
    "RequestOutput",
    "SamplingParams",
]

EXIT_SECONDS = 10.0  # how long a program that ends, or drops its LLM, waits for the step under way


class LLM:
    """An opened engine that serves requests until `shutdown`, the end of its `with`, or its own end."""

    def __init__(
        self,
        model: str | Path | Bundle,
        *,
        tokenizer: str | Path | Tokenizer | None = None,
        skip_tokenizer_init: bool = False,
        device: str = "auto",
        precision: str | None = None,
        checkpoint_dir: str | Path | None = None,
        kv_cache_config: KvCacheConfig | None = None,
        max_batch_size: int | None = None,
        max_num_tokens: int | None = None,
        max_seq_len: int | None = None,
        max_queue_size: int = 1024,
    ) -> None:
        """Open the engine of the bundle `model`.

        `tokenizer` is a folder with a tokenizer.json; None = the bundle's, if it has one. `precision`
        is "serving" or "exact"; None = "serving", or that of a `Bundle`. The three `max_` sizes may be
        smaller than what the engine was built for, which is what None stands for. `max_queue_size` is
        how many requests may wait.

        Raises:
            ConfigError: an illegal argument, or a size above what the engine was built for.
            CapacityError: the memory does not hold one sequence of `max_seq_len`; names the largest.
            BundleMismatch, CheckpointError: files that are damaged or do not belong together.
        """
        config = KvCacheConfig() if kv_cache_config is None else kv_cache_config
        if not isinstance(config, KvCacheConfig):
            raise ConfigError(f"kv_cache_config is {config!r}; expected a KvCacheConfig")
        config.check()
        check_whole("max_queue_size", max_queue_size, 1)
        bundle = choose_bundle(model, precision, checkpoint_dir)
        self.bundle = limit_sizes(bundle, max_batch_size, max_num_tokens, max_seq_len)
        self.tokenizer = None if skip_tokenizer_init else choose_tokenizer(tokenizer, bundle)
        executor = open_executor(self.bundle, self.tokenizer, config, device, max_queue_size)
        self._engine = executor.stepper.engine
        self.kv_plan = self._engine.plan
        self._numbers = count()
        self._thread = ExecutorThread(executor)
        self._at_end = weakref.finalize(self, self._thread.stop, EXIT_SECONDS)

    def profile(self) -> Profiler:
        """From here on every step runs launch by launch, slower, and is timed by op.

        Raises `ConfigError` on a CPU, and for TensorRT plans.
        """
        if not isinstance(self._engine, CanProfile):
            here = (
                'on a CPU; give it device="cuda" on a machine that has one'
                if self.bundle.record is None
                else "TensorRT plans; build with --engine native to time ops"
            )
            raise ConfigError(
                f"time by op is measured on a GPU by the native engine, and this LLM runs {here}"
            )
        return self._engine.profile()

    @overload
    def generate(
        self, inputs: OnePrompt, sampling_params: SamplingParams | None = None
    ) -> RequestOutput: ...
    @overload
    def generate(
        self,
        inputs: ManyPrompts,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]: ...
    def generate(
        self,
        inputs: OnePrompt | ManyPrompts,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> RequestOutput | list[RequestOutput]:
        """Run one prompt, or a list of them, to the end: one `RequestOutput` each.

        A prompt is a text, a list of token ids, `{"prompt": text}` or `{"prompt_token_ids": ids}`; a
        text gets a begin-of-sentence token in front unless it wrote one. A list may be longer than the
        queue. All prompts are checked before the first one runs.

        Raises `RequestError` for an illegal request, and the error that ended a sequence; the others
        are aborted then.
        """
        checked = [self._read(*pair) for pair in pair_inputs(inputs, sampling_params)]
        found = self._generate(checked)
        return found if is_batch(inputs) else found[0]

    def generate_async(
        self,
        inputs: OnePrompt,
        sampling_params: SamplingParams | None = None,
        *,
        streaming: bool = False,
        priority: float = 0.5,
        cache_salt: str = "",
        timeout: float | None = None,
    ) -> RequestOutput:
        """Start one prompt and return its handle, which can be awaited, iterated or asked for `result`.

        Of `priority`, 0 to 1, higher is served first. Pages are shared only between requests with the
        same `cache_salt`. After `timeout` seconds, waiting included, the request ends with what it has
        and the reason "timeout".

        Raises `RequestError` for an illegal request and `QueueFull` when too many wait.
        """
        check_timeout(timeout)
        prompt, params = self._read(inputs, sampling_params)
        deadline = None if timeout is None else self._thread.executor.clock() + timeout
        return self._submit(
            prompt,
            params,
            streaming=streaming,
            priority=priority,
            cache_salt=cache_salt,
            deadline=deadline,
        )

    @property
    def build(self) -> BuildSpec:
        """The sizes that are served."""
        return self.bundle.build

    @property
    def metrics(self) -> dict[str, Any]:
        """Counters, histograms and gauges of now, as plain JSON data."""
        return self._thread.executor.metrics.snapshot()

    def shutdown(self) -> None:
        """End all requests as "cancelled"; again is no error. The engine's memory goes with the LLM."""
        self._at_end.detach()
        self._thread.stop()
        self._thread.executor.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()

    def _read(self, inputs: object, params: SamplingParams | None) -> Checked:
        return read_request(inputs, params, self.bundle, self.tokenizer)

    def _submit(
        self, prompt: Prompt, params: SamplingParams, *, streaming: bool = False, **options: Any
    ) -> RequestOutput:
        request = Request(
            request_id=str(next(self._numbers)),
            prompt_ids=prompt.token_ids,
            params=params,
            **options,
        )
        handle = RequestOutput(
            request, self._thread.cancel, prompt=prompt.text, streaming=streaming
        )
        self._thread.submit(request, handle)
        return handle

    def _generate(self, checked: list[Checked]) -> list[RequestOutput]:
        handles: list[RequestOutput] = []
        try:
            for prompt, one in checked:
                handles.append(self._submit_when_possible(prompt, one, handles))
            return [handle.result() for handle in handles]
        except BaseException:
            for handle in handles:
                handle.abort()
            raise

    def _submit_when_possible(
        self, prompt: Prompt, params: SamplingParams, handles: list[RequestOutput]
    ) -> RequestOutput:
        """Submit, after waiting for own requests while the queue is full of them."""
        while True:
            try:
                return self._submit(prompt, params)
            except QueueFull:
                running = next((h for h in handles if not h.finished), None)
                if running is None:
                    raise
                running.result()
