"""All routes of OpenAI's API."""

from __future__ import annotations

from fastapi import APIRouter

from dsv4_trt.runtime.server.openai import (
    chat_routes,
    completions_routes,
    models_routes,
    tokenize_routes,
)
from dsv4_trt.runtime.server.served import Served


def routes(served: Served) -> APIRouter:
    """The routes."""
    router = APIRouter()
    for part in (models_routes, chat_routes, completions_routes, tokenize_routes):
        router.include_router(part.routes(served))
    return router
