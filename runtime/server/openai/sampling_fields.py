"""How tokens are chosen, and when a sequence ends: the fields that chat and completions share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints, Tag

from dsv4_trt.runtime.sampling.sampling_params import (
    MAX_LOGIT_BIAS,
    MAX_N,
    MAX_PENALTY,
    MAX_REPETITION,
    MAX_SEED,
    MAX_TEMPERATURE,
    MIN_REPETITION,
)
from dsv4_trt.runtime.server.body import MAX_STOPS, Body, Unsupported, by_kind

MIN_SEED = -(2**63)  # a negative seed stands for its two's complement

StopText = Annotated[str, StringConstraints(min_length=1)]
Stop = Annotated[
    Annotated[StopText, Tag("string?")]
    | Annotated[list[StopText], Field(max_length=MAX_STOPS), Tag("array?")],
    by_kind("a text or a list of texts"),
]
TokenKey = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}$")]
Bias = Annotated[float, Field(ge=-MAX_LOGIT_BIAS, le=MAX_LOGIT_BIAS)]
TokenId = Annotated[int, Field(ge=0)]

_SAME_NAME = (
    "n",
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "stop",
    "stop_token_ids",
    "min_tokens",
    "ignore_eos",
)

UNSUPPORTED_SAMPLING = {
    "use_beam_search": Unsupported("sequences are sampled; ask for several with n", (False,)),
    "best_of": Unsupported("ask for n sequences and choose among them", (1,)),
    "length_penalty": Unsupported("it belongs to beam search, and sequences are sampled", (1, 1.0)),
    "bad_words": Unsupported("forbid tokens with logit_bias", ([],)),
    "allowed_token_ids": Unsupported("use logit_bias, or structured_outputs"),
    "logits_processors": Unsupported("use logit_bias, or structured_outputs", ([],)),
    "prompt_logprobs": Unsupported("the command `dsv4-trt logits` gives logits of a prompt"),
    "include_stop_str_in_output": Unsupported("stop_reason says which string it was", (False,)),
    "skip_special_tokens": Unsupported("use return_token_ids, or logprobs", (True,)),
    "truncate_prompt_tokens": Unsupported("shorten the prompt, /tokenize counts its tokens"),
}


class SamplingFields(Body):
    """Sampling, in the names of OpenAI's API and of what others added to it."""

    n: int | None = Field(None, ge=1, le=MAX_N)
    temperature: float | None = Field(None, ge=0, le=MAX_TEMPERATURE)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, description="-1 and 0 are off.")
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, ge=MIN_REPETITION, le=MAX_REPETITION)
    presence_penalty: float | None = Field(None, ge=-MAX_PENALTY, le=MAX_PENALTY)
    frequency_penalty: float | None = Field(None, ge=-MAX_PENALTY, le=MAX_PENALTY)
    logit_bias: dict[TokenKey, Bias] | None = None
    seed: int | None = Field(None, ge=MIN_SEED, lt=MAX_SEED)
    stop: Stop | None = None
    stop_token_ids: list[TokenId] | None = None
    max_tokens: int | None = Field(None, ge=1)
    min_tokens: int | None = Field(None, ge=0)
    ignore_eos: bool | None = None
    priority: float | None = Field(None, ge=0, le=1, description="Higher is served first.")
    cache_salt: str | None = Field(
        None, description="Prompts share cached pages only with those of the same salt."
    )
    return_token_ids: bool | None = None

    def sampling(self) -> dict[str, Any]:
        """Keyword arguments of `SamplingParams`: those that were given, without max_tokens."""
        found = {name: getattr(self, name) for name in _SAME_NAME}
        found["top_k"] = None if self.top_k is None else max(self.top_k, 0)
        found["seed"] = None if self.seed is None else self.seed % MAX_SEED
        if self.logit_bias is not None:
            found["logit_bias"] = {int(key): bias for key, bias in self.logit_bias.items()}
        return {name: value for name, value in found.items() if value is not None}
