"""What a server tells of itself: health, version, metrics, sizes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter, Response

from dsv4_trt import __version__
from dsv4_trt.errors import Unavailable
from dsv4_trt.runtime.server.http_metrics import HttpMetrics
from dsv4_trt.runtime.server.served import Served
from dsv4_trt.runtime.server.start_request import start_request

GENERATE_SECONDS = 60.0  # how long one token may take before `/health_generate` calls that ill


def routes(served: Served, metrics: HttpMetrics) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["status"])

    @router.get("/health")
    async def health() -> dict[str, str]:
        """200 while requests are taken, 503 while the server drains or its engine starts again."""
        served.check_open()
        return {"status": "ok"}

    @router.get("/health_generate")
    async def health_generate() -> dict[str, str]:
        """Whether the engine really generates: one token, through everything but text."""
        try:
            async with asyncio.timeout(GENERATE_SECONDS):  # an engine that hangs keeps no time
                await _generate(served)
        except TimeoutError:
            raise Unavailable(f"the engine gave no token in {GENERATE_SECONDS:.0f} s") from None
        return {"status": "ok"}

    @router.get("/version")
    async def version() -> dict[str, str]:
        """The version of dsv4-trt."""
        return {"version": __version__}

    @router.get("/server_info")
    async def server_info() -> dict[str, Any]:
        """The model, the engine, and the sizes that are served."""
        return describe(served)

    @router.get("/engine_stats")
    async def engine_stats() -> dict[str, Any]:
        """Counters, histograms and gauges of the executor, as JSON."""
        return {
            **await served.client.metrics(),
            "model": served.model_name,
            "uptime_s": round(time.time() - served.started, 3),
            "max_batch_size": served.info.build.max_batch_size,
            "max_seq_len": served.info.build.max_seq_len,
            "is_draining": served.is_draining,
        }

    @router.get("/metrics", response_class=Response)
    async def prometheus() -> Response:
        """The same and counts of HTTP requests, in Prometheus' text format."""
        try:
            snapshot = await served.client.metrics()
        except Unavailable:
            snapshot = None
        text = metrics.text(snapshot)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


async def _generate(served: Served) -> None:
    """Generate one token; raises what keeps it from coming."""
    stream = await start_request(
        served,
        [served.info.spec.bos_token_id],
        {"temperature": 0.0, "ignore_eos": True},
        max_tokens=1,
        parameter="prompt",
        priority=1.0,
        timeout=GENERATE_SECONDS,
    )
    updates = []
    while news := await stream.read():
        updates += news
    if updates[-1].error is not None:
        raise updates[-1].error
    if not any(update.token for update in updates):
        raise TimeoutError


def describe(served: Served) -> dict[str, Any]:
    """`/server_info`."""
    info = served.info
    return {
        "version": __version__,
        "model": served.model_name,
        "identity": info.identity,
        "engine": info.engine,
        "device": info.device,
        "precision": info.precision,
        "encoder_revision": info.encoder_revision,
        "vocab_size": info.spec.vocab_size,
        "max_batch_size": info.build.max_batch_size,
        "max_num_tokens": info.build.max_num_tokens,
        "max_seq_len": info.build.max_seq_len,
        "kv_pool_pages": info.pool_pages,
        "max_queue_size": served.config.max_queue_size,
        "max_request_bytes": served.config.max_request_bytes,
        "request_timeout": served.config.request_timeout,
        "tool_parser": served.config.tool_parser,
        "reasoning_parser": served.config.reasoning_parser,
        "state": "draining" if served.is_draining else served.client.state,
    }
