"""Serves Triton requests from one `LLM`: takes them in, knows those that run, and ends the abandoned."""

from __future__ import annotations

import json
from itertools import count
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.triton.answers import stopped
from dsv4_trt.runtime.triton.ask import Ask, read_ask
from dsv4_trt.runtime.triton.failures import NoSuchRequest
from dsv4_trt.runtime.triton.fields import Fields
from dsv4_trt.runtime.triton.gauges import Gauges
from dsv4_trt.runtime.triton.model_text import ModelText
from dsv4_trt.runtime.triton.reply import Reply
from dsv4_trt.runtime.triton.run import Run

if TYPE_CHECKING:
    from dsv4_trt.runtime.llm import LLM
    from dsv4_trt.runtime.request_output import RequestOutput

WATCH_SECONDS = 0.1  # between two looks for clients that have left
SHOW_EVERY = 20  # looks between two of the metrics
END_SECONDS = 10.0  # for the step under way, and the last responses


class Service:
    """One engine behind one Triton model. `take` may be called by one thread at a time."""

    def __init__(
        self, llm: LLM, backend: Any, *, has_batch_dim: bool, gauges: Gauges | None = None
    ) -> None:
        """Take an `LLM` over; `backend` is triton_python_backend_utils."""
        self._llm, self._backend = llm, backend
        self._has_batch_dim, self._gauges = has_batch_dim, gauges
        self._text = ModelText(llm.bundle.spec.eos_token_id, llm.tokenizer)
        self._lock = Lock()
        self._runs: dict[Run, str] = {}  # with the client's request id, which may be empty
        self._is_closing = Event()
        self._watcher = Thread(target=self._watch, name="dsv4-trt watcher", daemon=True)
        self._watcher.start()

    def take(self, request: Any) -> None:
        """Begin to serve an `InferenceRequest`; whatever is wrong with it goes back as its error."""
        reply = Reply(request, self._backend)
        try:
            parameters = json.loads(request.parameters() or "{}")
            tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            fields = Fields(tensors, parameters)
            if fields.for_all("stop", False):
                self._stop(request.request_id(), reply)
                return
            ask = read_ask(fields, self._text)
            timeout = _seconds(request.timeout() or parameters.get("timeout", 0))
            self._run(ask, timeout, request.request_id(), reply)
        except Exception as error:
            reply.fail(error)

    def close(self) -> None:
        """End what runs as "cancelled", and the engine."""
        self._is_closing.set()
        self._llm.shutdown()
        for run in self._running():
            run.join(END_SECONDS)
        self._watcher.join(END_SECONDS)

    def _run(self, ask: Ask, timeout: float | None, request_id: str, reply: Reply) -> None:
        run = Run(
            ask,
            self._submit(ask, timeout),
            reply,
            has_batch_dim=self._has_batch_dim,
            prompt_text=self._prompt_text,
            on_end=self._forget,
        )
        with self._lock:
            self._runs[run] = request_id
        run.start()

    def _submit(self, ask: Ask, timeout: float | None) -> list[RequestOutput]:
        """Start all prompts, or none."""
        handles: list[RequestOutput] = []
        try:
            for prompt, params in zip(ask.prompts, ask.params, strict=True):
                handles.append(
                    self._llm.generate_async(
                        prompt,
                        params,
                        streaming=ask.streaming,
                        priority=ask.priority,
                        cache_salt=ask.cache_salt,
                        timeout=timeout,
                    )
                )
        except BaseException:
            for handle in handles:
                handle.abort()
            raise
        return handles

    def _stop(self, request_id: str, reply: Reply) -> None:
        """Cancel the runs of the client's id, and end the request that asked for it."""
        if not request_id:
            raise RequestError("stop needs the id of the request that is to end", parameter="stop")
        with self._lock:
            found = [run for run, its_id in self._runs.items() if its_id == request_id]
        if not found:
            raise NoSuchRequest(f"no request with the id '{request_id}' runs; it may have ended")
        for run in found:
            run.cancel()
        reply.send(stopped(has_batch_dim=self._has_batch_dim), last=True)

    def _watch(self) -> None:
        for look in count():
            if look % SHOW_EVERY == 0:
                self._show()
            if self._is_closing.wait(WATCH_SECONDS):
                return
            for run in self._running():
                if run.client_has_left():
                    run.cancel()

    def _show(self) -> None:
        if self._gauges is None:
            return
        try:
            self._gauges.show(self._llm.metrics)
        except Exception as error:  # who watches for clients must not end
            self._backend.Logger.log_error(f"dsv4-trt: metrics are shown no more: {error!r}")
            self._gauges = None

    def _running(self) -> list[Run]:
        with self._lock:
            return list(self._runs)

    def _forget(self, run: Run) -> None:
        with self._lock:
            self._runs.pop(run, None)

    def _prompt_text(self, handle: RequestOutput) -> str:
        if handle.prompt is not None:
            return handle.prompt
        tokenizer = self._llm.tokenizer
        return (
            ""
            if tokenizer is None
            else tokenizer.decode(handle.prompt_token_ids, skip_special=True)
        )


def _seconds(microseconds: object) -> float | None:
    """Triton counts the time that a request may take in microseconds; 0 = no limit."""
    if type(microseconds) is not int or microseconds < 0:
        raise RequestError(
            f"timeout is {microseconds!r}; expected whole microseconds", parameter="timeout"
        )
    return microseconds / 1e6 if microseconds else None
