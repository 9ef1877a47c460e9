"""The page over an API that says what a test tells it to, on a port of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from dsv4_trt.runtime.metrics import Metrics, PoolPages
from dsv4_trt.runtime.server import web_page

MODEL = "deepseek-v4-fake"
GATE = "gate"  # a stream waits here until the test opens the gate
DONE = "[DONE]"


@dataclass
class Reply:
    """Events of a stream (dicts are JSON, numbers pauses, `GATE`), or with another status an error."""

    events: list[Any] = field(default_factory=list)
    status: int = 200
    error: Any = None
    headers: dict[str, str] = field(default_factory=dict)


def delta(finish=None, usage=None, **fields):
    """A chunk of a chat completion."""
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice], "usage": usage}


def usage(prompt, completion, *, cached=0, reasoning=0):
    """The last chunk of a stream."""
    return {"choices": [], "usage": counts(prompt, completion, cached=cached, reasoning=reasoning)}


def counts(prompt, completion, *, cached=0, reasoning=0):
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def call(index, call_id=None, name=None, arguments=""):
    """A part of a tool call."""
    part = {"index": index, "function": {"arguments": arguments}}
    if call_id:
        part |= {"id": call_id, "type": "function"}
        part["function"]["name"] = name
    return delta(tool_calls=[part])


def says(*texts, reasoning="", finish="stop"):
    """The reply of a model that answers with these texts, one a chunk."""
    thinks = [delta(reasoning_content=reasoning)] if reasoning else []
    chunks = [delta(role="assistant"), *thinks, *(delta(content=text) for text in texts)]
    return Reply([*chunks, delta(finish), usage(12, len(texts) + bool(reasoning)), DONE])


def error_body(message, kind="invalid_request_error", param=None, code=None):
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


class FakeApi:
    """The server's side of the page, driven by a test's thread."""

    def __init__(self) -> None:
        self.port = 0
        self.reset()

    def reset(self) -> None:
        """As at the start of a test."""
        self.replies: deque[Reply] = deque()
        self.bodies: list[dict[str, Any]] = []
        self.raw_bodies: list[bytes] = []
        self.broken = 0  # streams that the client left
        self.key: str | None = None
        self.gate = threading.Event()
        self.metrics = Metrics(
            pages={
                name: PoolPages(held=held, cached=cached, free=1000 - held - cached)
                for name, held, cached in (
                    ("large", 412, 200),
                    ("middle", 130, 60),
                    ("small", 18, 0),
                )
            }
        )
        self.is_draining = False
        self.stats_reply: Response | None = None  # instead of the metrics
        self.started = time.monotonic()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def stats(self) -> dict[str, Any]:
        return {
            **self.metrics.snapshot(),
            "model": MODEL,
            "uptime_s": time.monotonic() - self.started,
            "max_batch_size": 64,
            "max_seq_len": 131072,
            "is_draining": self.is_draining,
        }

    def app(self) -> FastAPI:
        app = FastAPI()
        app.include_router(web_page.routes())

        @app.get("/v1/models")
        async def models(request: Request) -> Any:
            models = {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
            return self._refusal(request) or models

        @app.get("/engine_stats")
        async def engine_stats(request: Request) -> Any:
            return self._refusal(request) or self.stats_reply or self.stats()

        @app.post("/v1/chat/completions")
        async def chat(request: Request) -> Response:
            if refusal := self._refusal(request):
                return refusal
            self.raw_bodies.append(await request.body())
            self.bodies.append(json.loads(self.raw_bodies[-1]))
            reply = self.replies.popleft()
            if reply.status != 200:
                return JSONResponse(reply.error, reply.status, reply.headers)
            return StreamingResponse(self._stream(reply.events), media_type="text/event-stream")

        return app

    def _refusal(self, request: Request) -> Response | None:
        if self.key is None or request.headers.get("authorization") == f"Bearer {self.key}":
            return None
        error = error_body("the API key is missing or wrong", "authentication_error")
        return JSONResponse(error, 401)

    async def _stream(self, events: list[Any]) -> AsyncIterator[str]:
        try:
            for event in events:
                if event == GATE:
                    while not self.gate.is_set():
                        await asyncio.sleep(0.005)
                elif isinstance(event, int | float):
                    await asyncio.sleep(event)
                else:
                    text = event if isinstance(event, str) else json.dumps(event)
                    yield f"data: {text}\n\n"
        except (asyncio.CancelledError, GeneratorExit):
            self.broken += 1
            raise


class RunningApi:
    """A `FakeApi` that is served from a thread."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.api.port = self._socket.getsockname()[1]
        config = uvicorn.Config(self.api.app(), log_level="error", lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))

    def __enter__(self) -> FakeApi:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        return self.api

    def __exit__(self, *_: object) -> None:
        self.api.gate.set()
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()
        self._socket.close()
