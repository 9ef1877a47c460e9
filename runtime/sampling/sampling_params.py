"""What one request asks of the sampler, in TensorRT-LLM's names, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams

MAX_N = 128
MAX_SEED = 2**64  # exclusive
MAX_LOGIT_BIAS = 100.0
MAX_PENALTY = 2.0
MAX_TEMPERATURE = 100.0
MIN_REPETITION, MAX_REPETITION = 0.01, 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one request's tokens are chosen and when it ends.

    The defaults are those of DeepSeek-V4's generation config: temperature 1, top_p 1. `stop` also
    takes one string or a list, `stop_token_ids` a list; both are kept as tuples.
    """

    n: int = 1  # sequences generated from the one prompt, each with draws of its own
    max_tokens: int = 32
    temperature: float = 1.0  # 0 = greedy
    top_p: float = 1.0  # (0, 1]; 1 = off
    top_k: int = 0  # 0 = off
    min_p: float = 0.0  # [0, 1]; share of the best token's probability; 0 = off
    repetition_penalty: float = 1.0  # over prompt and output; 1 = off
    presence_penalty: float = 0.0  # over output, once per token id
    frequency_penalty: float = 0.0  # over output, per occurrence
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None  # None = a fresh one for every request
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    min_tokens: int = 0  # before that many output tokens nothing but max_tokens ends the request
    ignore_eos: bool = False
    logprobs: int | None = None  # how many of the best tokens to report; 0 = only the chosen one
    guided_decoding: GuidedDecodingParams | None = None  # what the output must look like

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        if isinstance(self.logit_bias, Mapping):  # the caller may go on changing it
            object.__setattr__(self, "logit_bias", dict(self.logit_bias))
        for name in ("stop", "stop_token_ids"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))

    def end_token_ids(self, eos_token_id: int) -> tuple[int, ...]:
        """Token ids that end this request."""
        eos = () if self.ignore_eos else (eos_token_id,)
        return tuple(dict.fromkeys((*eos, *self.stop_token_ids)))

    def check(self, vocab_size: int) -> None:
        """Raise `RequestError` naming the first field with an illegal value."""
        _whole("n", self.n, 1, MAX_N)
        _whole("max_tokens", self.max_tokens, 1)
        _number("temperature", self.temperature, 0.0, MAX_TEMPERATURE)
        _number("top_p", self.top_p, 0.0, 1.0, above=True)
        _whole("top_k", self.top_k, 0)
        _number("min_p", self.min_p, 0.0, 1.0)
        _number("repetition_penalty", self.repetition_penalty, MIN_REPETITION, MAX_REPETITION)
        _number("presence_penalty", self.presence_penalty, -MAX_PENALTY, MAX_PENALTY)
        _number("frequency_penalty", self.frequency_penalty, -MAX_PENALTY, MAX_PENALTY)
        if not isinstance(self.logit_bias, Mapping):
            raise RequestError(
                f"logit_bias is {self.logit_bias!r}; expected a mapping of token ids to numbers",
                parameter="logit_bias",
            )
        for token_id, bias in self.logit_bias.items():
            _whole("a key of logit_bias", token_id, 0, vocab_size - 1)
            _number(f"logit_bias[{token_id}]", bias, -MAX_LOGIT_BIAS, MAX_LOGIT_BIAS)
        if self.seed is not None:
            _whole("seed", self.seed, 0, MAX_SEED - 1)
        self._check_stops(vocab_size)
        if type(self.ignore_eos) is not bool:
            raise RequestError(
                f"ignore_eos is {self.ignore_eos!r}; expected true or false", parameter="ignore_eos"
            )
        if self.logprobs is not None:
            _whole("logprobs", self.logprobs, 0, vocab_size)
        self._check_guided(vocab_size)

    def _check_stops(self, vocab_size: int) -> None:
        lists = "a list or tuple of"
        expected = {"stop": f"a string or {lists} strings", "stop_token_ids": f"{lists} token ids"}
        for name, kinds in expected.items():
            if not isinstance(getattr(self, name), tuple):
                raise RequestError(
                    f"{name} is {getattr(self, name)!r}; expected {kinds}", parameter=name
                )
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise RequestError(
                    f"stop holds {text!r}; expected non-empty strings", parameter="stop"
                )
        for token_id in self.stop_token_ids:
            _whole("an item of stop_token_ids", token_id, 0, vocab_size - 1)
        _whole("min_tokens", self.min_tokens, 0)
        if self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens is {self.min_tokens}; expected at most max_tokens {self.max_tokens}",
                parameter="min_tokens",
            )

    def _check_guided(self, vocab_size: int) -> None:
        guided = self.guided_decoding
        if guided is None:
            return
        if not isinstance(guided, GuidedDecodingParams):
            raise RequestError(
                f"guided_decoding is of type {type(guided).__name__}; expected GuidedDecodingParams",
                parameter="guided_decoding",
            )
        guided.check(vocab_size)


def _whole(name: str, value: object, low: int, high: int | None = None) -> None:
    if type(value) is not int or value < low or (high is not None and value > high):
        limits = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise RequestError(
            f"{name} is {value!r}; expected a whole number {limits}", parameter=_field(name)
        )


def _number(name: str, value: object, low: float, high: float, *, above: bool = False) -> None:
    """A number in [low, high]; `above` leaves out `low` itself. NaN is in no range."""
    if type(value) in (int, float):
        assert isinstance(value, int | float)
        if low <= value <= high and not (above and value == low):
            return
    edge = "above" if above else "of at least"
    raise RequestError(
        f"{name} is {value!r}; expected a number {edge} {low:g} and at most {high:g}",
        parameter=_field(name),
    )


def _field(name: str) -> str:
    """The field that "a key of logit_bias" or "logit_bias[3]" is a part of."""
    return name.split(" of ")[-1].partition("[")[0]
