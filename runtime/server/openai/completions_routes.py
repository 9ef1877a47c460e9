"""`POST /v1/completions`."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from dsv4_trt.runtime.server.client_names import in_client_names
from dsv4_trt.runtime.server.declared_answers import declared
from dsv4_trt.runtime.server.json_answer import token_answer
from dsv4_trt.runtime.server.openai.answer_head import AnswerHead, error_chunk
from dsv4_trt.runtime.server.openai.completions_answer import CompletionAnswer
from dsv4_trt.runtime.server.openai.completions_request import CompletionRequest
from dsv4_trt.runtime.server.openai.completions_response import Completion, CompletionChunk
from dsv4_trt.runtime.server.openai.text_runs import TextRuns
from dsv4_trt.runtime.server.served import Served
from dsv4_trt.runtime.server.sse import EventStream, answer_or_cancel


def routes(served: Served) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["openai"])

    @router.post(
        "/v1/completions", response_model=None, responses=declared(Completion, CompletionChunk)
    )
    async def create_completion(request: Request, body: CompletionRequest) -> Response:
        """Continue texts or token ids, in one piece or as a stream of server-sent events.

        A text gets a begin-of-sentence token in front unless it wrote one; markers in it become markup.
        """
        served.check_model(body.model)
        with in_client_names((), prompt="prompt", guided=body.guided_name):
            runs = await TextRuns.start(served, body)
        answer = CompletionAnswer(AnswerHead.begin(served, "cmpl-"), runs, body, served.tokenizer)
        if body.stream:
            return EventStream(runs, answer.events(), error_chunk)
        found = await answer_or_cancel(request, runs, answer.whole())
        return await token_answer(found, runs.completion_tokens * (1 + (body.logprobs or 0)))

    return router
