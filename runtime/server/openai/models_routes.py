"""`GET /v1/models` and `GET /v1/models/{model}`."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from dsv4_trt.runtime.server.declared_answers import declared
from dsv4_trt.runtime.server.json_answer import json_answer
from dsv4_trt.runtime.server.served import Served


class ModelCard(BaseModel):
    """The served model; `max_model_len` is how many tokens prompt and answer may have together."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int


class ModelList(BaseModel):
    """All of them, which is one."""

    object: Literal["list"]
    data: list[ModelCard]


def routes(served: Served) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["openai"])

    @router.get("/v1/models", response_model=None, responses=declared(ModelList))
    async def list_models() -> Response:
        """The served model."""
        return json_answer({"object": "list", "data": [_card(served)]})

    @router.get("/v1/models/{model:path}", response_model=None, responses=declared(ModelCard))
    async def retrieve_model(model: str) -> Response:
        """The served model, by its name; names may have slashes."""
        served.check_model(model)
        return json_answer(_card(served))

    return router


def _card(served: Served) -> dict[str, Any]:
    return {
        "id": served.model_name,
        "object": "model",
        "created": int(served.started),
        "owned_by": "dsv4-trt",
        "max_model_len": served.info.build.max_seq_len,
    }
