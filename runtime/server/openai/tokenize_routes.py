"""`POST /tokenize` and `POST /detokenize`."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.chat.markers import ASSISTANT
from dsv4_trt.runtime.server.declared_answers import declared
from dsv4_trt.runtime.server.json_answer import json_answer
from dsv4_trt.runtime.server.openai.token_names import token_name
from dsv4_trt.runtime.server.openai.tokenize_models import (
    DetokenizeAnswer,
    DetokenizeRequest,
    TokenizeAnswer,
    TokenizeChat,
    TokenizeRequest,
    TokenizeText,
)
from dsv4_trt.runtime.server.served import Served
from dsv4_trt.runtime.server.start_chat import encode_turn
from dsv4_trt.runtime.server.start_request import in_thread_if_long
from dsv4_trt.runtime.text.prompt import encode_text
from dsv4_trt.runtime.text.surrogates import check_unicode


def routes(served: Served) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["tokenizer"])

    @router.post("/tokenize", response_model=None, responses=declared(TokenizeAnswer))
    async def tokenize(body: TokenizeRequest) -> Response:
        """The token ids that a prompt, or a conversation, is to the model."""
        served.check_model(body.model)
        if isinstance(body, TokenizeChat):
            token_ids = await _chat_ids(served, body)
        else:
            token_ids = await _text_ids(served, body)
        names = None
        if body.return_token_strs:
            names = await in_thread_if_long(
                len(token_ids),
                lambda: [token_name(served.tokenizer.token_bytes(i)) for i in token_ids],
            )
        return json_answer(
            {
                "count": len(token_ids),
                "max_model_len": served.info.build.max_seq_len,
                "tokens": token_ids,
                "token_strs": names,
            }
        )

    @router.post("/detokenize", response_model=None, responses=declared(DetokenizeAnswer))
    async def detokenize(body: DetokenizeRequest) -> Response:
        """The text of token ids."""
        served.check_model(body.model)
        tokens, tokenizer = body.tokens, served.tokenizer
        for i, token_id in enumerate(tokens):
            if token_id >= tokenizer.vocab_size:
                raise RequestError(
                    f"tokens[{i}] is {token_id}; the vocabulary is 0 to {tokenizer.vocab_size - 1}",
                    parameter=f"tokens[{i}]",
                )
        text = await in_thread_if_long(len(tokens), lambda: tokenizer.decode(tokens))
        return json_answer({"prompt": text})

    return router


async def _text_ids(served: Served, body: TokenizeText) -> list[int]:
    text, tokenizer = body.prompt, served.tokenizer
    check_unicode(text, "prompt")
    if body.add_special_tokens is False:
        return await in_thread_if_long(len(text), lambda: tokenizer.encode(text))
    spec = served.info.spec
    return await in_thread_if_long(len(text), lambda: encode_text(text, spec, tokenizer))


async def _chat_ids(served: Served, body: TokenizeChat) -> list[int]:
    token_ids = await encode_turn(served, body.prompt_turn())
    begins_answer = token_ids[-2:-1] == [
        served.markup.ids[ASSISTANT]
    ]  # a marker of thinking follows
    if body.add_generation_prompt is False and begins_answer and not body.continues():
        return token_ids[:-2]
    return token_ids
