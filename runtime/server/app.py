"""All routes of a server in one ASGI application."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.types import ASGIApp

from dsv4_trt import __version__
from dsv4_trt.runtime.server import status_routes, web_page
from dsv4_trt.runtime.server.anthropic import routes as anthropic
from dsv4_trt.runtime.server.error_handlers import add_error_handlers
from dsv4_trt.runtime.server.gate import Gate
from dsv4_trt.runtime.server.http_metrics import HttpMetrics
from dsv4_trt.runtime.server.openai import routes as openai
from dsv4_trt.runtime.server.responses import routes as responses
from dsv4_trt.runtime.server.served import Served


def make_app(served: Served) -> ASGIApp:
    """The application; the engine is started by whoever serves it.

    FastAPI's own pages with documentation stay out: they load their scripts from elsewhere.
    """
    metrics = HttpMetrics()
    app = FastAPI(title="dsv4-trt", version=__version__, docs_url=None, redoc_url=None)
    add_error_handlers(app)
    app.include_router(status_routes.routes(served, metrics))
    for api in (openai, anthropic, responses):
        app.include_router(api.routes(served))
    app.include_router(web_page.routes())
    return Gate(app, served.config, metrics)
