"""The body of a chat completion request, and the turn it stands for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import Field

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.server.body import Unsupported
from dsv4_trt.runtime.server.chat_turn import ChatTurn
from dsv4_trt.runtime.server.openai.chat_messages import AssistantMessage
from dsv4_trt.runtime.server.openai.prompt_fields import PromptFields
from dsv4_trt.runtime.server.openai.sampling_fields import UNSUPPORTED_SAMPLING, SamplingFields
from dsv4_trt.runtime.server.openai.stream_fields import StreamFields

MAX_TOP_LOGPROBS = 20


class ChatRequest(PromptFields, SamplingFields, StreamFields):
    """`POST /v1/chat/completions`."""

    unsupported = UNSUPPORTED_SAMPLING | {
        "functions": Unsupported("give tools"),
        "function_call": Unsupported("give tool_choice"),
        "audio": Unsupported("this model writes text"),
        "web_search_options": Unsupported("give a tool that searches"),
        "moderation": Unsupported("moderate what comes back"),
        "echo": Unsupported("the prompt of a chat is what you sent", (False,)),
        "modalities": Unsupported("this model writes text", (["text"], [])),
    }

    model: str | None = Field(None, description="The served model's name; absent = that one.")
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)

    def turn(self) -> ChatTurn:
        """The turn; `RequestError` for fields that contradict each other."""
        self.check_stream()
        turn = self.prompt_turn()
        self._check_is_answered(turn.continue_final)
        return replace(
            turn,
            guided=self.guided(),
            sampling=self.sampling() | self._logprobs(),
            max_tokens=self._limit(),
            priority=0.5 if self.priority is None else self.priority,
            cache_salt=self.cache_salt or "",
        )

    def _check_is_answered(self, continues: bool) -> None:
        """Raise `RequestError` where the prompt would neither begin an answer nor go on with one."""
        if not continues and self.add_generation_prompt is False:
            raise RequestError(
                "add_generation_prompt is false and no message is continued, so nothing would be "
                "answered; give continue_final_message",
                parameter="add_generation_prompt",
            )
        if not continues and isinstance(self.messages[-1], AssistantMessage):
            last = len(self.messages) - 1
            raise RequestError(
                f"the last message, messages[{last}], is the assistant's own; to continue it give "
                "continue_final_message or its prefix as true, else end with a user or tool message",
                parameter=f"messages[{last}].role",
            )

    def _logprobs(self) -> dict[str, Any]:
        if self.top_logprobs and not self.logprobs:
            raise RequestError(
                f"top_logprobs is {self.top_logprobs} and logprobs is not true; expected both",
                parameter="top_logprobs",
            )
        return {"logprobs": self.top_logprobs or 0} if self.logprobs else {}

    def _limit(self) -> int | None:
        first, second = self.max_completion_tokens, self.max_tokens
        if first is not None and second is not None and first != second:
            raise RequestError(
                f"max_completion_tokens is {first} and max_tokens, its older name, is {second}; give one",
                parameter="max_tokens",
            )
        return second if first is None else first
