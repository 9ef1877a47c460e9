"""A server whose engine says what a test wrote: all of HTTP, chat format and parsers, and no model.

With it official clients have conversations that a model with random weights never would: reasoning that
ends, calls that are meant, loops of several steps. What was submitted is kept, to compare token ids.
"""

import asyncio
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import uvicorn

from dsv4_trt.contract import ENCODER_REVISION
from dsv4_trt.runtime.chat.markup import Markup
from dsv4_trt.runtime.chat.segments import template
from dsv4_trt.runtime.sampling.row_state import SampledToken
from dsv4_trt.runtime.server.app import make_app
from dsv4_trt.runtime.server.serve_config import ServeConfig
from dsv4_trt.runtime.server.served import Served
from dsv4_trt.runtime.server.token_stream import TokenStream
from dsv4_trt.runtime.text.text_stream import TextStream
from dsv4_trt.runtime.update import Update

MAX_SEQ_LEN = 4096
EOS = "<｜end▁of▁sentence｜>"
START_SECONDS = 20


def call(name="add", **arguments):
    """A tool call as the model writes it; arguments are JSON, as text or numbers."""
    lines = [
        f'<｜DSML｜parameter name="{key}" string="false">{value}</｜DSML｜parameter>'
        for key, value in arguments.items()
    ]
    return "\n".join([f'<｜DSML｜invoke name="{name}">', *lines, "</｜DSML｜invoke>"])


def calls(*made):
    """The block of these calls."""
    return "\n\n<｜DSML｜tool_calls>\n" + "\n".join(made) + "\n</｜DSML｜tool_calls>"


@dataclass
class ScriptedClient:
    """Stands for an `EngineClient`: each request gets the next script, a text or an error."""

    tokenizer: object
    markup: Markup
    scripts: list = field(default_factory=list)
    requests: list = field(default_factory=list)
    cancelled: list = field(default_factory=list)
    said: list = field(default_factory=list)  # token ids put out, by request
    state: str = "ready"

    def __post_init__(self):
        self.info = SimpleNamespace(
            build=SimpleNamespace(max_seq_len=MAX_SEQ_LEN, max_batch_size=4),
            spec=SimpleNamespace(vocab_size=self.tokenizer.vocab_size, bos_token_id=0),
            encoder_revision=ENCODER_REVISION,
            identity="scripted",
        )
        self._tasks = set()

    def clear(self):
        """Forget what earlier tests left."""
        for kept in (self.scripts, self.requests, self.cancelled, self.said):
            kept.clear()

    def say(self, *scripts):
        """What the next requests get."""
        self.scripts.extend(scripts)

    def check_ready(self):
        pass

    def new_id(self):
        return str(len(self.requests))

    async def submit(self, request, timeout=None):
        self.requests.append(request)
        script = self.scripts.pop(0)
        if isinstance(script, Exception) and not getattr(script, "late", False):
            raise script
        stream = TokenStream(request, self.cancelled.append)
        task = asyncio.create_task(self._play(stream, script))
        self._tasks.add(task)
        return stream

    async def _play(self, stream, script):
        request = stream.request
        error = script if isinstance(script, Exception) else None
        text = "half" if error else script
        ids = self.markup.encode(template(text), self.tokenizer)
        self.said.append(ids)
        shown = TextStream(self.tokenizer, request.params, self.markup.eos)
        for number, token_id in enumerate(ids, 1):
            await asyncio.sleep(0)
            piece = shown.push(token_id)
            is_over = shown.matched is not None
            is_full = number == request.params.max_tokens
            if is_full and not is_over:
                piece += shown.finish()
            reason = "stop" if is_over else "length" if is_full else None
            stream.deliver(self._update(request, token_id, piece, shown, reason, number == 1))
            if reason is not None:
                return
        end = {"finish_reason": "error" if error else "timeout", "error": error}
        stream.deliver(Update(request_id=request.request_id, index=0, finished=True, **end))

    def _update(self, request, token_id, piece, shown, reason, is_first):
        stopped = shown.matched if isinstance(shown.matched, str) else None
        return Update(
            request_id=request.request_id,
            index=0,
            token=SampledToken(token_id, -1.0, ()),
            text=piece,
            marks=() if shown.mark is None else (shown.mark,),
            finish_reason=reason,
            stop_reason=stopped,
            num_cached=2 if is_first else None,
            finished=reason is not None,
        )


@contextmanager
def scripted_server(tokenizer):
    """Serve scripts on a free port; gives the client to script, with its `url`."""
    client = ScriptedClient(tokenizer, Markup.resolve(tokenizer))
    served = Served(
        config=ServeConfig(engine_dir=Path("scripted")),
        client=client,
        tokenizer=tokenizer,
        markup=client.markup,
        model_name="tiny",
    )
    config = uvicorn.Config(
        make_app(served), port=0, lifespan="off", log_config=None, ws="none", access_log=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    waited = threading.Event()
    for _ in range(START_SECONDS * 100):
        if server.started:
            break
        waited.wait(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    client.url = f"http://127.0.0.1:{port}"
    try:
        yield client
    finally:
        server.should_exit = True
        thread.join(START_SECONDS)
        assert not thread.is_alive()
