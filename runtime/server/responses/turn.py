"""A request in the terms of the Responses API as a `ChatTurn`."""

from __future__ import annotations

from typing import Any

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.chat.markers import PARAGRAPH
from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams
from dsv4_trt.runtime.server.chat_turn import ChatTurn, ToolChoice, v4_effort
from dsv4_trt.runtime.server.client_names import PATH
from dsv4_trt.runtime.server.responses.request_models import (
    AllowedTools,
    FunctionName,
    JsonObjectFormat,
    JsonSchemaFormat,
    ResponseRequest,
    TextConfig,
    Tool,
)
from dsv4_trt.runtime.server.tools import check_tools, function_tool

LOGPROBS = "message.output_text.logprobs"


def chat_turn(body: ResponseRequest, messages: list[dict[str, Any]]) -> ChatTurn:
    """What to ask of the model; `messages` are the conversation without this request's instructions.

    Raises `RequestError` for a conversation that can not be answered and tools that can not be met.
    """
    _check_end(messages)
    if LOGPROBS in (body.include or ()):
        raise RequestError(
            f"include has '{LOGPROBS}', which is not supported; /v1/chat/completions gives logprobs",
            parameter="include",
        )
    tools, choice = _tools(body)
    effort = body.reasoning.effort if body.reasoning else None
    given = {"temperature": body.temperature, "top_p": body.top_p}
    return ChatTurn(
        messages=_with_instructions(body.instructions, messages),
        tools=[
            function_tool(tool.name, tool.description, tool.parameters, tool.strict)
            for tool in tools
        ],
        tool_choice=choice,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        thinking=effort != "none",
        effort=v4_effort(effort),
        sampling={name: value for name, value in given.items() if value is not None},
        max_tokens=body.max_output_tokens,
        **_format(body.text),
    )


def _check_end(messages: list[dict[str, Any]]) -> None:
    if messages[-1]["role"] in ("user", "tool"):
        return
    raise RequestError(
        f"input ends with what the role '{messages[-1]['role']}' says; expected a user message or the "
        "output of a function call at its end",
        parameter="input",
    )


def _with_instructions(
    instructions: str | None, messages: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Instructions stand before a system message of the input, in one message with it."""
    if instructions is None:
        return messages
    if messages[0]["role"] != "system":
        return [{"role": "system", "content": instructions, PATH: "instructions"}, *messages]
    both = instructions + PARAGRAPH + messages[0]["content"]
    return [messages[0] | {"content": both}, *messages[1:]]


def _tools(body: ResponseRequest) -> tuple[list[Tool], ToolChoice]:
    """The tools that the model is shown, and the choice; of allowed tools it is shown those alone."""
    tools = body.tools or []
    choice = ToolChoice()
    match body.tool_choice:
        case FunctionName(name=name):
            choice = ToolChoice(kind="named", name=name)
        case AllowedTools(mode=mode, tools=allowed):
            for tool in allowed:
                _check_names(tools, ToolChoice(kind="named", name=tool.name))
            names = {tool.name for tool in allowed}
            tools = [tool for tool in tools if tool.name in names]
            choice = ToolChoice(kind=mode)
        case "none" | "required" as kind:
            choice = ToolChoice(kind=kind)
    _check_names(tools, choice)
    return tools, choice


def _check_names(tools: list[Tool], choice: ToolChoice) -> None:
    check_tools([tool.name for tool in tools], choice, "tools[{}].name")


def _format(text: TextConfig | None) -> dict[str, Any]:
    match None if text is None else text.format:
        case JsonSchemaFormat(schema_=schema):
            return {"guided": GuidedDecodingParams(json=schema), "response_format": schema}
        case JsonObjectFormat():
            return {"guided": GuidedDecodingParams(json_object=True)}
        case _:
            return {}
