"""A request in Anthropic's terms as a `ChatTurn`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams
from dsv4_trt.runtime.server.anthropic.history import system_messages, v4_messages
from dsv4_trt.runtime.server.anthropic.request_models import (
    AnyChoice,
    MessagesRequest,
    NoChoice,
    OutputConfig,
    Prompt,
    ThinkingDisabled,
)
from dsv4_trt.runtime.server.anthropic.request_models import ToolChoice as NamedChoice
from dsv4_trt.runtime.server.chat_turn import ChatTurn, ToolChoice, v4_effort
from dsv4_trt.runtime.server.tools import check_tools, function_tool


def chat_turn(body: MessagesRequest) -> ChatTurn:
    """What to ask of the model; raises `RequestError` for a conversation that can not be answered."""
    turn = prompt_turn(body)
    if turn.continue_final:
        _check_prefill(body, turn.messages[-1])
    return replace(turn, sampling=_sampling(body), max_tokens=body.max_tokens)


def prompt_turn(body: Prompt) -> ChatTurn:
    """A turn with what its prompt is made of; raises `RequestError` for what makes none."""
    messages = v4_messages(body.messages)
    is_prefill = messages[-1]["role"] == "assistant"
    choice = _tool_choice(body.tool_choice)
    check_tools([tool.name for tool in body.tools], choice, "tools[{}].name")
    return ChatTurn(
        messages=system_messages(body.system) + messages,
        tools=[
            function_tool(tool.name, tool.description, tool.input_schema, tool.strict)
            for tool in body.tools
        ],
        tool_choice=choice,
        parallel_tool_calls=not getattr(body.tool_choice, "disable_parallel_tool_use", False),
        thinking=_thinks(body, messages[-1] if is_prefill else None),
        effort=v4_effort(body.output_config.effort if body.output_config else None),
        continue_final=is_prefill,
        **_format(body.output_config),
    )


def _thinks(body: Prompt, prefill: dict[str, Any] | None) -> bool:
    """As asked; by default V4 thinks, but not within a text that was begun without reasoning."""
    if body.thinking is not None:
        return not isinstance(body.thinking, ThinkingDisabled)
    return prefill is None or bool(prefill["reasoning_content"])


def _check_prefill(body: Prompt, last: dict[str, Any]) -> None:
    path = f"messages[{len(body.messages) - 1}]"
    if last["tool_calls"]:
        raise RequestError(
            f"{path} ends the conversation with tool_use blocks; expected their tool_result blocks "
            "in a user message after it",
            parameter=path,
        )
    thinks = body.thinking is not None and not isinstance(body.thinking, ThinkingDisabled)
    if thinks and not last["reasoning_content"]:
        raise RequestError(
            f"{path} begins the answer without a thinking block while thinking is on; expected one, "
            "or thinking of the type 'disabled'",
            parameter=path,
        )


def _tool_choice(choice: AnyChoice | NamedChoice | NoChoice | None) -> ToolChoice:
    match choice:
        case NamedChoice(name=name):
            return ToolChoice(kind="named", name=name)
        case AnyChoice(type="any"):
            return ToolChoice(kind="required")
        case NoChoice():
            return ToolChoice(kind="none")
        case _:
            return ToolChoice()


def _format(config: OutputConfig | None) -> dict[str, Any]:
    if config is None or config.format is None:
        return {}
    schema = config.format.schema_
    return {"guided": GuidedDecodingParams(json=schema), "response_format": schema}


def _sampling(body: MessagesRequest) -> dict[str, Any]:
    given = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "stop": tuple(body.stop_sequences) or None,
    }
    return {name: value for name, value in given.items() if value is not None}
