"""`/v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from dsv4_trt.runtime.server.anthropic.answer import start_answer
from dsv4_trt.runtime.server.anthropic.request_models import (
    CountTokensRequest,
    MessagesRequest,
    Prompt,
    ThinkingAdaptive,
    ThinkingEnabled,
)
from dsv4_trt.runtime.server.anthropic.response_models import (
    ErrorAnswer,
    MessageAnswer,
    TokensCount,
)
from dsv4_trt.runtime.server.anthropic.turn import chat_turn, prompt_turn
from dsv4_trt.runtime.server.client_names import in_client_names
from dsv4_trt.runtime.server.failures import Failure, anthropic_body
from dsv4_trt.runtime.server.json_answer import json_answer, named_event
from dsv4_trt.runtime.server.served import Served
from dsv4_trt.runtime.server.sse import EventStream, answer_or_cancel
from dsv4_trt.runtime.server.start_chat import encode_turn

# agents have such names built in, for example for titles; DeepSeek's own API answers to them as well
FAMILY = "claude"
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorAnswer, "description": "The request can not be served as it is."},
    "5XX": {"model": ErrorAnswer, "description": "The server failed, or is not ready."},
}
ANSWERS = ERRORS | {
    200: {
        "model": MessageAnswer,
        "description": "The message, or with `stream` its events.",
        "content": {"text/event-stream": {}},  # a schema would be one of the whole stream
    }
}


def routes(served: Served) -> APIRouter:
    """The routes of one served model."""
    router = APIRouter(tags=["anthropic"])

    @router.post("/v1/messages", responses=ANSWERS, response_model=None)
    async def create_message(body: MessagesRequest, request: Request) -> Response:
        """Answer a conversation."""
        _check_model(served, body.model)
        turn = chat_turn(body)
        with in_client_names(turn.messages, prompt="messages", guided=_guided_name(body)):
            answer = await start_answer(served, turn, shows_thinking=_shows_thinking(body))
        if body.stream:
            return EventStream(
                answer.run, answer.stream(), lambda failure: _error_event(failure, request)
            )
        return json_answer(await answer_or_cancel(request, answer.run, answer.whole()))

    @router.post("/v1/messages/count_tokens", responses=ERRORS)
    async def count_tokens(body: CountTokensRequest) -> TokensCount:
        """Count the tokens of a prompt."""
        _check_model(served, body.model)
        turn = prompt_turn(body)
        with in_client_names(turn.messages, prompt="messages", guided=_guided_name(body)):
            return TokensCount(input_tokens=len(await encode_turn(served, turn)))

    return router


def _check_model(served: Served, name: str) -> None:
    if not name.startswith(FAMILY):
        served.check_model(name)


def _guided_name(body: Prompt) -> str:
    """The field that makes the answer follow a grammar."""
    return "output_config.format" if body.output_config and body.output_config.format else "tools"


def _shows_thinking(body: MessagesRequest) -> bool:
    thinking = body.thinking
    return (
        not isinstance(thinking, ThinkingEnabled | ThinkingAdaptive)
        or thinking.display != "omitted"
    )


def _error_event(failure: Failure, request: Request) -> str:
    return named_event(anthropic_body(failure, request.scope["state"].get("request_id")))
