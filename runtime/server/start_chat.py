"""Starts a chat turn: its prompt, what its answer must look like, its parsers."""

from __future__ import annotations

from dataclasses import replace

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.chat.encoding import encode_segments
from dsv4_trt.runtime.chat.stream_parser import StreamParser
from dsv4_trt.runtime.guided.tool_grammar import required_tools_tag
from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams
from dsv4_trt.runtime.sampling.sampling_params import MAX_LOGIT_BIAS
from dsv4_trt.runtime.server.chat_run import ChatRun
from dsv4_trt.runtime.server.chat_turn import ChatTurn
from dsv4_trt.runtime.server.served import Served
from dsv4_trt.runtime.server.start_request import in_thread_if_long, start_request


async def start_chat(served: Served, turn: ChatTurn) -> ChatRun:
    """Run a turn; raises `RequestError` for one that can not be run, and what `start_request` does."""
    served.check_open()
    prompt_ids = await encode_turn(served, turn)
    guided = await in_thread_if_long(_size(turn), lambda: _guided(served, turn))
    sampling = {**turn.sampling, "guided_decoding": guided}
    if turn.tools and turn.tool_choice.kind == "none":
        bias = {served.markup.dsml: -MAX_LOGIT_BIAS}  # tools stay in the prompt, and in its cache
        sampling["logit_bias"] = {**bias, **sampling.get("logit_bias", {})}
    stream = await start_request(
        served,
        prompt_ids,
        sampling,
        max_tokens=turn.max_tokens,
        parameter="messages",
        priority=turn.priority,
        cache_salt=turn.cache_salt,
    )
    thinking = begins_thinking(turn)
    calls = bool(turn.tools) and turn.tool_choice.kind != "none"
    parsers = [StreamParser(thinking, calls=calls) for _ in range(stream.request.params.n)]
    end_think = served.markup.end_think if thinking else None
    return ChatRun(stream, parsers, end_think, one_call=not turn.parallel_tool_calls)


async def encode_turn(served: Served, turn: ChatTurn) -> list[int]:
    """Token ids of a turn's prompt; markup that is spelled in its texts stays text."""
    return await in_thread_if_long(_size(turn), lambda: _encode(served, turn))


def _encode(served: Served, turn: ChatTurn) -> list[int]:
    messages = turn.messages
    if turn.continue_final:
        if not messages or messages[-1].get("role") != "assistant":
            raise RequestError(
                "the last message is to be continued and is not the assistant's; end with a message of the "
                "role assistant",
                parameter="messages",
            )
        messages = [*messages[:-1], {**messages[-1], "wo_eos": True}]
    segments = encode_segments(
        messages,
        turn.tools or None,
        thinking=turn.thinking,
        reasoning_effort=turn.effort,
        response_format=turn.response_format,
        encoder_revision=served.info.encoder_revision,
    )
    return served.markup.encode(segments, served.tokenizer)


def _guided(served: Served, turn: ChatTurn) -> GuidedDecodingParams | None:
    """The grammar of the answer: the one asked for, or that of tool calls that must be made."""
    start_after = served.markup.end_think if begins_thinking(turn) else None
    if turn.tool_choice.kind not in ("required", "named"):
        return turn.guided and replace(turn.guided, start_after=start_after)
    if turn.guided is not None:
        raise RequestError(
            "tools are required and a format of the answer is asked for; ask for one of them",
            parameter="tool_choice",
        )
    tag = required_tools_tag(
        turn.tools,
        dsml_token_id=served.markup.dsml,
        name=turn.tool_choice.name,
        parallel=turn.parallel_tool_calls,
    )
    return GuidedDecodingParams(structural_tag=tag, start_after=start_after)


def begins_thinking(turn: ChatTurn) -> bool:
    """Whether the answer begins with reasoning: not where it goes on, nor where a task is asked for."""
    last = turn.messages[-1] if turn.messages else {}
    return turn.thinking and not turn.continue_final and not last.get("task")


def _size(turn: ChatTurn) -> int:
    """Characters of a turn, about."""
    parts = (*turn.messages, *turn.tools, turn.response_format or {})
    return sum(len(str(value)) for part in parts for value in part.values())
