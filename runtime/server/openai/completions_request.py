"""The body of a completion request."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import Discriminator, Field, Tag

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.server.body import Unsupported
from dsv4_trt.runtime.server.openai.sampling_fields import (
    UNSUPPORTED_SAMPLING,
    SamplingFields,
    TokenId,
)
from dsv4_trt.runtime.server.openai.stream_fields import StreamFields
from dsv4_trt.runtime.server.openai.structured_fields import StructuredFields

MAX_PROMPTS = 1024
MAX_LOGPROBS = 20
DEFAULT_MAX_TOKENS = 16  # OpenAI's

TokenIds: TypeAlias = Annotated[list[TokenId], Field(min_length=1)]


def _kind(value: Any) -> str | None:
    """A text, or a list by its first item."""
    if isinstance(value, str):
        return "text?"
    if not isinstance(value, list):
        return None
    kinds = {int: "ids?", list: "id_lists?"}
    return kinds.get(type(value[0]), "texts?") if value else "texts?"


Prompt = Annotated[
    Annotated[str, Tag("text?")]
    | Annotated[list[str], Field(min_length=1, max_length=MAX_PROMPTS), Tag("texts?")]
    | Annotated[TokenIds, Tag("ids?")]
    | Annotated[list[TokenIds], Field(min_length=1, max_length=MAX_PROMPTS), Tag("id_lists?")],
    Discriminator(
        _kind,
        custom_error_type="kind",
        custom_error_message="expected a text, a list of token ids, or a list of either",
    ),
]


class CompletionRequest(StructuredFields, SamplingFields, StreamFields):
    """`POST /v1/completions`."""

    unsupported = UNSUPPORTED_SAMPLING | {
        "suffix": Unsupported("this model continues a prompt, it fills no gaps", ("",)),
    }

    model: str | None = Field(None, description="The served model's name; absent = that one.")
    prompt: Prompt
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)

    def prompts(self) -> list[str | list[int]]:
        """The prompts, one by one."""
        prompt = self.prompt
        if isinstance(prompt, str) or isinstance(prompt[0], int):
            return [prompt]
        return list(prompt)

    def options(self) -> dict[str, Any]:
        """Arguments of `start_text` beside the prompt; `RequestError` for fields that contradict."""
        self.check_stream()
        if self.echo and self.logprobs is not None:
            raise RequestError(
                "echo and logprobs are given, and log-probabilities of a prompt are not computed here; the "
                "command `dsv4-trt logits` gives its logits",
                parameter="logprobs",
            )
        sampling = self.sampling() | {"guided_decoding": self.guided()}
        if self.logprobs is not None:
            sampling["logprobs"] = self.logprobs
        return {
            "sampling": sampling,
            "max_tokens": DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens,
            "priority": 0.5 if self.priority is None else self.priority,
            "cache_salt": self.cache_salt or "",
        }
