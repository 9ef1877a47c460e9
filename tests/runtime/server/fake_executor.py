"""An executor without an engine: what comes next is a function of the prompt and the position alone.

Everything the server sees of an executor is there, text included, at a few microseconds of cost a token,
so that load falls on the server. Run as a module it is `dsv4-trt serve` over this executor.
"""

import os
import threading
import time
from collections import deque

from dsv4_trt.cli.serve import command
from dsv4_trt.contract import ENCODER_REVISION, BuildSpec
from dsv4_trt.errors import QueueFull
from dsv4_trt.presets import TINY
from dsv4_trt.runtime.metrics import Metrics
from dsv4_trt.runtime.request import check_request
from dsv4_trt.runtime.sampling.row_state import SampledToken
from dsv4_trt.runtime.server.executor_messages import EngineInfo
from dsv4_trt.runtime.server.executor_process import Opened
from dsv4_trt.runtime.text.text_stream import TextStream
from dsv4_trt.runtime.text.tokenizer import Tokenizer
from dsv4_trt.runtime.update import Update

BUILD = BuildSpec(max_batch_size=1024, max_num_tokens=8192, max_seq_len=16384, mtp=False)
FIRST, COUNT = 1000, 5000  # ids that are put out: plain text, no markers


def expected_ids(prompt_ids, count):
    """What a prompt brings."""
    seed = sum(prompt_ids) * 7919 + len(prompt_ids)
    return [FIRST + (seed + 104729 * i) % COUNT for i in range(count)]


class FakeExecutor:
    """See `runtime.executor.Executor`; a step brings every request a token, and takes `step_seconds`."""

    def __init__(self, tokenizer, max_queue_size, step_seconds):
        self.tokenizer, self.max_queue_size = tokenizer, max_queue_size
        self.step_seconds = step_seconds
        self.metrics, self.clock = Metrics(), time.monotonic
        self.spec, self.build, self.layout = TINY, BUILD, None
        self.grammars = None
        self._lock = threading.Lock()
        self._running = {}
        self._cancelled = deque()

    @property
    def has_work(self):
        return bool(self._running)

    def submit(self, request):
        check_request(self, request.prompt_ids, request.params)
        with self._lock:
            if len(self._running) >= self.max_queue_size:
                self.metrics.requests_refused += 1
                raise QueueFull(f"{len(self._running)} sequences run; try again later")
            self.metrics.requests_accepted += 1
            self._running[request.request_id] = Run(request, self.tokenizer)

    def close(self):
        pass

    def cancel(self, request_id):
        self._cancelled.append(request_id)

    def cancel_all(self):
        self._cancelled.extend(list(self._running))

    def abort(self, error):
        with self._lock:
            names, self._running = list(self._running), {}
        return [
            Update(request_id=name, index=0, finish_reason="error", error=error, finished=True)
            for name in names
        ]

    def step(self):
        time.sleep(self.step_seconds)
        updates = []
        while self._cancelled:
            name = self._cancelled.popleft()
            if self._running.pop(name, None) is not None:
                updates.append(self._end(name, "cancelled"))
        with self._lock:
            running = list(self._running.items())
        now = self.clock()
        for name, run in running:
            if run.deadline is not None and run.deadline <= now:
                del self._running[name]
                updates.append(self._end(name, "timeout"))
                continue
            update = run.next()
            self.metrics.output_tokens += 1
            if update.finished:
                del self._running[name]
                self.metrics.count_finished(update.finish_reason)
            updates.append(update)
        self.metrics.steps += 1
        self.metrics.running = len(self._running)
        return updates

    def _end(self, name, reason):
        self.metrics.count_finished(reason)
        return Update(request_id=name, index=0, finish_reason=reason, finished=True)


class Run:
    """One request; only one sequence each."""

    def __init__(self, request, tokenizer):
        self.name, self.params, self.deadline = request.request_id, request.params, request.deadline
        self.text = TextStream(tokenizer, request.params, TINY.eos_token_id)
        self.ids = iter(expected_ids(request.prompt_ids, request.params.max_tokens))
        self.left = request.params.max_tokens

    def next(self):
        token_id = next(self.ids)
        self.left -= 1
        text = self.text.push(token_id)
        reason = "stop" if self.text.matched is not None else None
        if reason is None and self.left == 0:
            text += self.text.finish()
            reason = "length"
        return Update(
            request_id=self.name,
            index=0,
            token=SampledToken(token_id, -1.0),
            text=text,
            finish_reason=reason,
            stop_reason=self.text.matched,
            num_cached=0,
            finished=reason is not None,
        )


def open_fake(config):
    """Takes the place of `open_with_kernels`; DSV4_FAKE_STEP is the time of a step in seconds."""
    tokenizer = Tokenizer.load(config.tokenizer or config.engine_dir)
    step_seconds = float(os.environ.get("DSV4_FAKE_STEP", "0.01"))
    executor = FakeExecutor(tokenizer, config.max_queue_size, step_seconds)
    info = EngineInfo(
        spec=TINY,
        build=BUILD,
        engine="native",
        device="cpu",
        precision="serving",
        identity="fake",
        encoder_revision=ENCODER_REVISION,
        pool_pages={"large": 1, "middle": 1, "small": 1},
    )
    return Opened(executor, info)


if __name__ == "__main__":
    import dsv4_trt.cli.serve
    import tests.runtime.server.fake_executor as importable

    dsv4_trt.cli.serve.open_with_kernels = (
        importable.open_fake
    )  # by a name that the process can import
    command()
