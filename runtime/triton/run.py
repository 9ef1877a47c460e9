"""A Triton request on its way: threads that bring what the engine tells of its prompts to the client.

A thread for each prompt of a stream, one for an answer in one piece. Sends of different requests so
overlap: one takes a few hundred microseconds, most of them waiting for another process.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Thread

from dsv4_trt.runtime.request_output import RequestOutput
from dsv4_trt.runtime.triton.answers import Row, answer
from dsv4_trt.runtime.triton.ask import Ask
from dsv4_trt.runtime.triton.reply import Reply


class Run:
    """The handles of one request's prompts, until the client has all that they brought."""

    def __init__(
        self,
        ask: Ask,
        handles: list[RequestOutput],
        reply: Reply,
        *,
        has_batch_dim: bool,
        prompt_text: Callable[[RequestOutput], str],
        on_end: Callable[[Run], None],
    ) -> None:
        self._ask, self._handles, self._reply = ask, handles, reply
        self._has_batch_dim = has_batch_dim
        self._prompt_text = prompt_text
        self._on_end = on_end
        self._lock = Lock()
        self._num_open = len(handles)  # prompts whose stream has not ended
        targets = [self._stream] * len(handles) if ask.streaming else [self._whole]
        self._threads = [
            Thread(target=target, args=(at,), name="dsv4-trt reply", daemon=True)
            for at, target in enumerate(targets)
        ]

    def start(self) -> None:
        """Begin to answer; `on_end` is called once, by a thread of this run."""
        for thread in self._threads:
            thread.start()

    def join(self, timeout: float) -> None:
        """Wait until the threads have ended."""
        for thread in self._threads:
            thread.join(timeout)

    def cancel(self) -> None:
        """End all prompts at the next step, as "cancelled"."""
        for handle in self._handles:
            handle.abort()

    def client_has_left(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._reply.is_cancelled()

    def _whole(self, _: int) -> None:
        try:
            rows = [
                self._row(at, handle, index, whole=True)
                for at, handle in enumerate(handle.result() for handle in self._handles)
                for index in range(len(handle.outputs))
            ]
            self._reply.send(answer(self._ask, rows, has_batch_dim=self._has_batch_dim), last=True)
        except Exception as error:
            self._fail(error)
        finally:
            self._on_end(self)

    def _stream(self, at: int) -> None:
        ended: set[int] = set()  # sequences whose last response is sent
        try:
            for step in self._handles[at]:
                for output in step.outputs:
                    has_ended = output.finish_reason is not None
                    if output.index in ended or not (has_ended or output.num_seen < output.length):
                        continue
                    if has_ended:
                        ended.add(output.index)
                    row = self._row(at, step, output.index, whole=False)
                    self._reply.send(answer(self._ask, [row], has_batch_dim=self._has_batch_dim))
        except Exception as error:
            self._fail(error)
        finally:
            with self._lock:
                self._num_open -= 1
                is_last = self._num_open == 0
            if is_last:
                self._reply.close()
                self._on_end(self)

    def _row(self, at: int, handle: RequestOutput, index: int, *, whole: bool) -> Row:
        output = handle.outputs[index]
        text = output.text if whole else output.text_diff
        if self._ask.repeats_prompt:
            text = self._prompt_text(handle) + text
        return Row(
            batch_index=at,
            output=output,
            num_input_tokens=len(handle.prompt_token_ids),
            text=text,
            tokens=output.tokens if whole else output.tokens[output.num_seen :],
        )

    def _fail(self, error: Exception) -> None:
        self.cancel()
        self._reply.fail(error)
