"""Bodies and answers of `/tokenize` and `/detokenize`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import BaseModel, Discriminator, Field, Tag

from dsv4_trt.runtime.server.body import Body, Unsupported
from dsv4_trt.runtime.server.openai.prompt_fields import PromptFields
from dsv4_trt.runtime.server.openai.sampling_fields import TokenId


class TokenizeText(Body):
    """A prompt as a completion takes it."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool | None = Field(
        None,
        description="A begin-of-sentence token in front unless the text wrote it; the default.",
    )
    return_token_strs: bool | None = None


class TokenizeChat(PromptFields):
    """Messages as a chat completion takes them; without the beginning of an answer if so wanted."""

    unsupported: ClassVar = {"prompt": Unsupported("give either prompt or messages")}

    model: str | None = None
    return_token_strs: bool | None = None


def _which(value: Any) -> str:
    return "messages?" if isinstance(value, dict) and "messages" in value else "prompt?"


TokenizeRequest: TypeAlias = Annotated[
    Annotated[TokenizeText, Tag("prompt?")] | Annotated[TokenizeChat, Tag("messages?")],
    Discriminator(_which),
]


class TokenizeAnswer(BaseModel):
    """Token ids; `token_strs` are their texts, in escapes where the bytes are no text."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizeRequest(Body):
    """Token ids."""

    model: str | None = None
    tokens: list[TokenId]


class DetokenizeAnswer(BaseModel):
    """Their text, markers included; bytes that are no text become U+FFFD."""

    prompt: str
