"""Token counts of an answer, as OpenAI's API writes them and with DeepSeek's names for the cached part."""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic import BaseModel

from dsv4_trt.runtime.server.sse import Run

UsageDict: TypeAlias = dict[str, Any]


class PromptTokensDetails(BaseModel):
    """Of the prompt."""

    cached_tokens: int


class CompletionTokensDetails(BaseModel):
    """Of the answer; `</think>` is counted as reasoning."""

    reasoning_tokens: int


class Usage(BaseModel):
    """All sequences of a request together; the prompt counts once, the token that ended a sequence too."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails
    prompt_cache_hit_tokens: int
    prompt_cache_miss_tokens: int


def usage(run: Run) -> UsageDict:
    """The `Usage` of a run so far, as plain JSON data."""
    prompt, cached, completion = run.prompt_tokens, run.cached_tokens, run.completion_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": run.reasoning_tokens},
        "prompt_cache_hit_tokens": cached,
        "prompt_cache_miss_tokens": prompt - cached,
    }
