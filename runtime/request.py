"""A request, and what one may ask of an engine, checked before anything heavy is loaded. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dsv4_trt.contract import BuildSpec
from dsv4_trt.errors import RequestError
from dsv4_trt.kv_layout import KvLayout
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.runtime.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A client's ask: `params.n` sequences that continue one prompt."""

    request_id: str
    prompt_ids: Sequence[int]
    params: SamplingParams
    priority: float = 0.5  # 0 to 1; a higher one is served first
    deadline: float | None = None  # seconds on the executor's clock
    cache_salt: str = ""  # requests share cached pages only with those of the same salt


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
    if not token_ids:
        raise RequestError(f"{name} has no tokens; expected at least one")
    vocab = limits.spec.vocab_size
    for token in token_ids:
        if not 0 <= token < vocab:
            raise RequestError(f"{name} has token id {token}; the vocabulary is 0 to {vocab - 1}")


def check_length(name: str, prompt: int, output: int, limits: Limits) -> None:
    """Raise `RequestError` for a sequence longer than the engine was built for."""
    longest = limits.build.max_seq_len
    if prompt + output > longest:
        raise RequestError(
            f"{name} has {prompt} tokens and {output} more are asked for, together above the "
            f"engine's max_seq_len {longest}; ask for less or build with a larger --max_seq_len"
        )
