"""A request, and what one may ask of an engine, checked before anything heavy is loaded. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal, Protocol, TypeAlias

import numpy as np

from dsv4_trt.contract import BuildSpec
from dsv4_trt.errors import RequestError
from dsv4_trt.kv_layout import KvLayout
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams

FinishReason: TypeAlias = Literal["stop", "length", "cancelled", "timeout", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A client's ask: `params.n` sequences that continue one prompt."""

    request_id: str
    prompt_ids: Sequence[int]
    params: SamplingParams
    priority: float = 0.5  # 0 to 1; a higher one is served first
    deadline: float | None = None  # seconds on the executor's clock
    cache_salt: str = ""  # requests share cached pages only with those of the same salt

    def check(self, limits: Limits) -> None:
        """Raise `RequestError` for the first thing that this engine can not serve."""
        check_request(limits, self.prompt_ids, self.params)
        if not isinstance(self.request_id, str):
            raise RequestError(
                f"request_id is {self.request_id!r}; expected a text", parameter="request_id"
            )
        if not is_number(self.priority) or not 0 <= self.priority <= 1:
            raise RequestError(
                f"priority is {self.priority!r}; expected a number from 0 to 1",
                parameter="priority",
            )
        if self.deadline is not None and not is_number(self.deadline):
            raise RequestError(
                f"deadline is {self.deadline!r}; expected finite seconds or None",
                parameter="deadline",
            )
        if not isinstance(self.cache_salt, str):
            raise RequestError(
                f"cache_salt is {self.cache_salt!r}; expected a text", parameter="cache_salt"
            )


class Limits(Protocol):
    """What an engine and an opened bundle both say about themselves."""

    @property
    def spec(self) -> ModelSpec: ...
    @property
    def build(self) -> BuildSpec: ...
    @property
    def layout(self) -> KvLayout: ...


def check_request(limits: Limits, prompt_ids: Sequence[int], params: SamplingParams) -> None:
    """Raise `RequestError` for a prompt or parameters that this engine can not serve."""
    params.check(limits.spec.vocab_size)
    check_prompt_ids("the prompt", prompt_ids, limits)
    check_length("the prompt", len(prompt_ids), params.max_tokens, limits)


def check_prompt_ids(name: str, token_ids: Sequence[int], limits: Limits) -> None:
    """Raise `RequestError` for an empty prompt or an id outside the vocabulary."""
    if len(token_ids) == 0:
        raise RequestError(f"{name} has no tokens; expected at least one", parameter="prompt")
    last = limits.spec.vocab_size - 1
    ids = np.asarray(token_ids)
    if ids.ndim == 1 and ids.dtype.kind in "iu" and ids.min() >= 0 and ids.max() <= last:
        return
    wrong = next((t for t in token_ids if type(t) is not int or not 0 <= t <= last), token_ids)
    raise RequestError(
        f"{name} has token id {wrong!r}; the vocabulary is 0 to {last}", parameter="prompt"
    )


def check_length(name: str, prompt: int, output: int, limits: Limits) -> None:
    """Raise `RequestError` for a sequence longer than the engine was built for."""
    longest = limits.build.max_seq_len
    if prompt + output > longest:
        raise RequestError(
            f"{name} has {prompt} tokens and {output} more are asked for, together above the "
            f"engine's max_seq_len {longest}; ask for less, or raise max_seq_len: of the LLM "
            "if it was given less than was built, else build with a larger --max_seq_len",
            parameter="max_tokens" if prompt < longest else "prompt",
        )


def is_number(value: object) -> bool:
    """Whether this is a finite number; true and false are none."""
    return type(value) is int or (type(value) is float and isfinite(value))


def no_text_for(params: SamplingParams) -> RequestError:
    """The error of a request that has stop strings where there is no tokenizer."""
    return RequestError(
        f"stop is {params.stop!r}, which needs a tokenizer, and this engine has none; use "
        "stop_token_ids, or name a tokenizer",
        parameter="stop",
    )


def no_grammar_for(params: SamplingParams) -> RequestError:
    """The error of a request that has a grammar where there is no tokenizer."""
    return RequestError(
        f"guided_decoding is {str(params.guided_decoding)[:80]}, which needs a tokenizer, and this "
        "engine has none; name a tokenizer",
        parameter="guided_decoding",
    )
