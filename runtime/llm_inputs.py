"""What callers of an `LLM` give it: one prompt or a list, with parameters for all or for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.request import check_request, is_number, no_text_for
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.text.prompt import Prompt, is_id, read_prompt
from dsv4_trt.runtime.text.tokenizer import Tokenizer

PromptDict: TypeAlias = dict[str, str] | dict[str, list[int]]
OnePrompt: TypeAlias = str | list[int] | tuple[int, ...] | PromptDict
ManyPrompts: TypeAlias = (
    list[str]
    | list[list[int]]
    | list[tuple[int, ...]]
    | list[dict[str, str]]
    | list[dict[str, list[int]]]
    | list[str | list[int]]
)
Checked: TypeAlias = tuple[Prompt, SamplingParams]

MAX_TIMEOUT = 10**9  # seconds


def is_batch(inputs: object) -> bool:
    """Whether these are several prompts: a list that is not one of token ids."""
    if not isinstance(inputs, list | tuple):
        return False
    return not inputs or not is_id(inputs[0])


def pair_inputs(
    inputs: OnePrompt | ManyPrompts,
    params: SamplingParams | Sequence[SamplingParams] | None,
) -> list[tuple[object, SamplingParams | None]]:
    """Each prompt with its parameters; raises `RequestError` unless they are as many."""
    if not is_batch(inputs):
        if isinstance(params, list | tuple):
            raise RequestError("a list of sampling params was given for a single prompt")
        return [(inputs, params)]  # type: ignore[list-item]
    if not isinstance(params, list | tuple):
        return [(one, params) for one in inputs]  # type: ignore[misc]
    if len(params) != len(inputs):
        raise RequestError(
            f"{len(params)} sampling params were given for {len(inputs)} prompts; give one for all, "
            "or one each"
        )
    return list(zip(inputs, params, strict=True))


def read_request(
    inputs: object, params: SamplingParams | None, bundle: Bundle, tokenizer: Tokenizer | None
) -> Checked:
    """A prompt and parameters that this engine can serve; raises `RequestError` for others."""
    params = SamplingParams() if params is None else params
    if not isinstance(params, SamplingParams):
        raise RequestError(f"sampling params are {params!r}; expected SamplingParams")
    if params.stop and tokenizer is None:
        raise no_text_for(params)
    prompt = read_prompt(inputs, bundle.spec, tokenizer)
    check_request(bundle, prompt.token_ids, params)
    return prompt, params


def check_timeout(timeout: float | None) -> None:
    """Raise `RequestError` unless `timeout` is a number of seconds, or None."""
    if timeout is None:
        return
    if not is_number(timeout) or not 0 <= timeout <= MAX_TIMEOUT:
        raise RequestError(f"timeout is {timeout!r}; expected seconds, 0 to {MAX_TIMEOUT}")
