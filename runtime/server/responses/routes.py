"""`/v1/responses`: create, count, retrieve, delete."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from fastapi import APIRouter, Request
from pydantic import TypeAdapter
from starlette.responses import Response

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.server.chat_turn import ChatTurn
from dsv4_trt.runtime.server.client_names import in_client_names
from dsv4_trt.runtime.server.declared_answers import ERRORS
from dsv4_trt.runtime.server.failures import Failure, Refusal
from dsv4_trt.runtime.server.json_answer import json_answer
from dsv4_trt.runtime.server.responses.answer import Answer
from dsv4_trt.runtime.server.responses.history import v4_messages
from dsv4_trt.runtime.server.responses.input_items import Item
from dsv4_trt.runtime.server.responses.output_items import OutputItems
from dsv4_trt.runtime.server.responses.request_models import ResponseRequest
from dsv4_trt.runtime.server.responses.response_models import (
    DeletedAnswer,
    InputTokensAnswer,
    ResponseAnswer,
)
from dsv4_trt.runtime.server.responses.response_object import begin
from dsv4_trt.runtime.server.responses.store import ResponseStore, Stored
from dsv4_trt.runtime.server.responses.turn import chat_turn
from dsv4_trt.runtime.server.served import Served
from dsv4_trt.runtime.server.sse import EventStream, answer_or_cancel
from dsv4_trt.runtime.server.start_chat import encode_turn, start_chat

ANSWERS = ERRORS | {
    200: {
        "model": ResponseAnswer,
        "description": "The response, or with `stream` its events.",
        "content": {"text/event-stream": {}},  # a schema would be one of the whole stream
    }
}
STORED = ERRORS | {200: {"model": ResponseAnswer, "description": "The response."}}
ITEM: TypeAdapter[Item] = TypeAdapter(Item)


def routes(served: Served) -> APIRouter:
    """The routes of one served model, with a store of their own."""
    router = APIRouter(tags=["openai"])
    store = ResponseStore()

    @router.post("/v1/responses", responses=ANSWERS, response_model=None)
    async def create_response(body: ResponseRequest, request: Request) -> Response:
        """Answer a conversation."""
        served.check_model(body.model)
        messages = conversation(body, store)
        turn = chat_turn(body, messages)
        with _client_names(turn):
            run = await start_chat(served, turn)
        output = OutputItems(seals_reasoning=body.seals_reasoning, shows_summary=body.shows_summary)

        def keep(response: dict[str, Any]) -> None:
            if body.is_stored:
                store.put(Stored(response=response, messages=_with_answer(messages, response)))

        answer = Answer(run, begin(body, served.model_name), output, keep)
        if body.stream:
            return EventStream(run, answer.stream(), answer.failed)
        return json_answer(await answer_or_cancel(request, run, answer.whole()))

    @router.post("/v1/responses/input_tokens", responses=ERRORS)
    async def count_tokens(body: ResponseRequest) -> InputTokensAnswer:
        """Count the tokens of a prompt."""
        served.check_model(body.model)
        turn = chat_turn(body, conversation(body, store))
        with _client_names(turn):
            return InputTokensAnswer(input_tokens=len(await encode_turn(served, turn)))

    @router.get("/v1/responses/{response_id}", responses=STORED, response_model=None)
    async def retrieve_response(response_id: str, stream: bool = False) -> Response:
        """A stored response."""
        if stream:
            raise RequestError(
                "a stored response comes in one piece; leave stream out", parameter="stream"
            )
        stored = store.get(response_id)
        if stored is None:
            raise _unknown(response_id)
        return json_answer(stored.response)

    @router.delete("/v1/responses/{response_id}", responses=ERRORS)
    async def delete_response(response_id: str) -> DeletedAnswer:
        """Forget a stored response."""
        if not store.drop(response_id):
            raise _unknown(response_id)
        return DeletedAnswer(id=response_id)

    return router


def conversation(body: ResponseRequest, store: ResponseStore) -> list[dict[str, Any]]:
    """V4's messages of a request: those of the response that it goes on from, and its input."""
    past: Sequence[dict[str, Any]] = ()
    if body.previous_response_id is not None:
        stored = store.get(body.previous_response_id)
        if stored is None:
            raise RequestError(
                f"previous_response_id is {body.previous_response_id!r}, which is not stored here (any "
                "more); send the whole conversation as input",
                parameter="previous_response_id",
            )
        past = stored.messages

    def find(item_id: str) -> Item | None:
        found = store.item(item_id)
        return None if found is None else ITEM.validate_python(found)

    return v4_messages(body.input, find, past)


def _client_names(turn: ChatTurn) -> AbstractContextManager[None]:
    guided = "tools" if turn.guided is None else "text.format"
    return in_client_names(turn.messages, prompt="input", guided=guided)


def _with_answer(messages: list[dict[str, Any]], response: dict[str, Any]) -> list[dict[str, Any]]:
    items = [ITEM.validate_python(item) for item in response["output"]]
    return v4_messages(items, lambda _: None, messages)


def _unknown(response_id: str) -> Refusal:
    return Refusal(
        Failure(
            status=404,
            kind="invalid_request_error",
            message=f"the response '{response_id}' is not stored here, or not any more",
            parameter="response_id",
            code="not_found",
        )
    )
