"""What the prompt of a chat is made of."""

from __future__ import annotations

from pydantic import Field

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.server.body import MAX_ITEMS
from dsv4_trt.runtime.server.chat_turn import ChatTurn
from dsv4_trt.runtime.server.openai.chat_messages import AssistantMessage, Message
from dsv4_trt.runtime.server.openai.structured_fields import StructuredFields
from dsv4_trt.runtime.server.openai.thinking_fields import ThinkingFields
from dsv4_trt.runtime.server.openai.tool_fields import ToolFields


class PromptFields(ToolFields, ThinkingFields, StructuredFields):
    """What a prompt is made of."""

    messages: list[Message] = Field(min_length=1, max_length=MAX_ITEMS, fail_fast=True)
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    def prompt_turn(self) -> ChatTurn:
        """A turn with what its prompt is made of; `RequestError` for fields that contradict each other."""
        tools, choice = self.chosen_tools()
        return ChatTurn(
            messages=[message.encoded() for message in self.messages],
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=self.parallel_tool_calls is not False,
            thinking=self.thinks(),
            effort=self.effort(),
            continue_final=self.continues(),
            response_format=self.schema_for_prompt(),
        )

    def continues(self) -> bool:
        """Whether the last message goes on; `RequestError` where that can not be."""
        *before, last = self.messages
        for i, message in enumerate(before):
            if isinstance(message, AssistantMessage) and message.prefix:
                raise RequestError(
                    f"messages[{i}].prefix is true; only the last message can be continued",
                    parameter=f"messages[{i}].prefix",
                )
        is_prefix = isinstance(last, AssistantMessage) and bool(last.prefix)
        wanted = self.continue_final_message
        if is_prefix and wanted is False:
            raise RequestError(
                "the last message has prefix true and continue_final_message is false; expected "
                "them to agree",
                parameter="continue_final_message",
            )
        if (wanted or is_prefix) and self.add_generation_prompt:
            raise RequestError(
                "add_generation_prompt begins a new message and the last one is to be continued; "
                "give one of them",
                parameter="add_generation_prompt",
            )
        if wanted and not isinstance(last, AssistantMessage):
            raise RequestError(
                f"continue_final_message is true and the last message is of the role '{last.role}'; "
                "expected one of the assistant",
                parameter="continue_final_message",
            )
        return bool(wanted) or is_prefix
