"""`POST /v1/chat/completions`."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from dsv4_trt.runtime.server.client_names import in_client_names
from dsv4_trt.runtime.server.declared_answers import declared
from dsv4_trt.runtime.server.json_answer import token_answer
from dsv4_trt.runtime.server.openai.answer_head import AnswerHead, error_chunk
from dsv4_trt.runtime.server.openai.chat_chunks import ChatChunks, ChunkOptions
from dsv4_trt.runtime.server.openai.chat_logprobs import ChatLogprobWriter
from dsv4_trt.runtime.server.openai.chat_request import ChatRequest
from dsv4_trt.runtime.server.openai.chat_response import ChatCompletion, ChatCompletionChunk
from dsv4_trt.runtime.server.openai.chat_whole import whole_chat
from dsv4_trt.runtime.server.openai.stream_fields import StreamOptions
from dsv4_trt.runtime.server.served import Served
from dsv4_trt.runtime.server.sse import EventStream, answer_or_cancel
from dsv4_trt.runtime.server.start_chat import start_chat


def routes(served: Served) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["openai"])

    @router.post(
        "/v1/chat/completions",
        response_model=None,
        responses=declared(ChatCompletion, ChatCompletionChunk),
    )
    async def create_chat_completion(request: Request, body: ChatRequest) -> Response:
        """Answer a conversation, in one piece or as a stream of server-sent events."""
        served.check_model(body.model)
        turn = body.turn()
        guided = "tools" if turn.guided is None else body.guided_name
        with in_client_names(turn.messages, prompt="messages", guided=guided):
            run = await start_chat(served, turn)
        head = AnswerHead.begin(served, "chatcmpl-")
        logprobs = ChatLogprobWriter(served.tokenizer) if body.logprobs else None
        token_ids = bool(body.return_token_ids)
        if body.stream:
            options = ChunkOptions(
                num_choices=body.n or 1,
                logprobs=logprobs,
                token_ids=token_ids,
                usage=body.stream_options or StreamOptions(),
            )
            return EventStream(run, ChatChunks(head, run, options).events(), error_chunk)
        whole = whole_chat(head, run, logprobs=logprobs, token_ids=token_ids)
        found = await answer_or_cancel(request, run, whole)
        return await token_answer(found, run.completion_tokens * (1 + (body.top_logprobs or 0)))

    return router
