"""One Triton request as prompts and sampling parameters for the engine, and what its answer has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.triton.fields import Fields
from dsv4_trt.runtime.triton.model_text import ModelText
from dsv4_trt.runtime.triton.prompts import PromptInput, read_prompts
from dsv4_trt.runtime.triton.token_rules import read_biases, read_guides

# fields that are sampling parameters under the same name
_SAMPLING = (
    *("max_tokens", "min_tokens", "temperature", "top_k", "top_p", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "ignore_eos"),
)
_OPTIONAL = {  # field -> outputs that it asks for
    "return_finish_reason": ("finish_reason",),
    "return_stop_reason": ("stop_reason",),
    "return_log_probs": ("cum_log_probs", "output_log_probs", "sequence_length"),
    "return_cumulative_logprob": ("cumulative_logprob",),
    "return_num_input_tokens": ("num_input_tokens",),
    "return_num_output_tokens": ("num_output_tokens",),
    "return_output_ids": ("output_ids", "sequence_length"),
}
_ALWAYS = ("text_output", "batch_index", "sequence_index")
_UNLESS_REFUSED = ("return_finish_reason", "return_stop_reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Prompts with their parameters, and how the answer looks."""

    prompts: list[PromptInput]
    params: list[SamplingParams]
    streaming: bool
    outputs: frozenset[str]  # names of the output tensors to send
    repeats_prompt: bool
    pad_id: int
    priority: float
    cache_salt: str


def read_ask(fields: Fields, text: ModelText) -> Ask:
    """What a request asks for; raises `RequestError` naming the tensor at fault.

    Values are checked by the engine.
    """
    prompts = read_prompts(fields, text)
    num = len(prompts)
    streaming = fields.for_all("streaming", False)
    sampling: list[dict[str, Any]] = [{"n": fields.for_all("n", 1)} for _ in prompts]
    for key in _SAMPLING:
        if key in fields:
            _set(sampling, key, fields.for_each(key, num))
    _read_ends(fields, sampling, text.eos_id)
    if fields.for_all("return_log_probs", False):
        _set(sampling, "logprobs", [0] * num)
    _set(sampling, "logit_bias", read_biases(fields, num, text))
    _set(sampling, "guided_decoding", read_guides(fields, num, text))
    return Ask(
        prompts=prompts,
        params=[SamplingParams(**options) for options in sampling],
        streaming=streaming,
        outputs=_read_outputs(fields),
        repeats_prompt=not streaming and not fields.for_all("excludes_prompt", True),
        pad_id=fields.for_all("pad_id", text.eos_id),
        priority=fields.for_all("priority", 0.5),
        cache_salt=fields.for_all("cache_salt", ""),
    )


def _set(sampling: list[dict[str, Any]], key: str, values: Sequence[Any] | None) -> None:
    """One sampling parameter of every prompt; None = it was not given."""
    for options, value in zip(sampling, values or (), strict=values is not None):
        options[key] = value


def _read_ends(fields: Fields, sampling: list[dict[str, Any]], eos_id: int) -> None:
    """Stop words, stop token ids, and `end_id`, which takes the place of the end-of-sentence token."""
    num = len(sampling)
    if "stop_words" in fields:  # rows are filled up with empty texts
        words = fields.lists("stop_words", num)
        _set(sampling, "stop", [[word for word in row if word] for row in words])
    if "stop_token_ids" in fields:
        _set(sampling, "stop_token_ids", fields.lists("stop_token_ids", num))
    if "end_id" not in fields:
        return
    for options, end_id in zip(sampling, fields.for_each("end_id", num), strict=True):
        if end_id == eos_id:
            continue
        options["ignore_eos"] = True
        if end_id != -1:
            options["stop_token_ids"] = [*options.get("stop_token_ids", ()), end_id]


def _read_outputs(fields: Fields) -> frozenset[str]:
    outputs = set(_ALWAYS)
    for key, names in _OPTIONAL.items():
        if fields.for_all(key, key in _UNLESS_REFUSED):
            outputs.update(names)
    if "input_ids" in fields and fields.for_all("return_output_ids", True):
        outputs.update(_OPTIONAL["return_output_ids"])
    return frozenset(outputs)
