"""Generates one sequence, token by token: prefill in chunks, sample, feed back, stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dsv4_trt.errors import RequestError
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.runtime.engine import Engine
from dsv4_trt.runtime.row_state import RowState, SampledToken
from dsv4_trt.runtime.sampler import Sampler
from dsv4_trt.runtime.sampling_params import SamplingParams
from dsv4_trt.runtime.stepper import Chunk, Stepper
from dsv4_trt.runtime.text_stream import TextStream


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedToken:
    """One token, the text it completed, and on the last token why generation ended."""

    token: SampledToken
    text: str
    finish_reason: str | None  # "stop" (a token or string that ends it), "length" or None


def check_request(
    spec: ModelSpec, max_seq_len: int, prompt_ids: Sequence[int], params: SamplingParams
) -> None:
    """Raise `RequestError` for a prompt or parameters that this engine can not serve."""
    params.check(spec.vocab_size)
    if not prompt_ids:
        raise RequestError("the prompt has no tokens; expected at least one")
    for token in prompt_ids:
        if not 0 <= token < spec.vocab_size:
            raise RequestError(
                f"the prompt has token id {token}; the vocabulary is 0 to {spec.vocab_size - 1}"
            )
    if len(prompt_ids) + params.max_tokens > max_seq_len:
        raise RequestError(
            f"the prompt has {len(prompt_ids)} tokens and max_tokens is {params.max_tokens}, "
            f"together above the engine's max_seq_len {max_seq_len}; shorten the prompt, lower "
            "max_tokens or build with a larger --max_seq_len"
        )


def generate(
    engine: Engine,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    text: TextStream | None = None,
) -> Iterator[GeneratedToken]:
    """Yield tokens until a stop or `max_tokens`; without `text` only token ids stop it."""
    check_request(engine.spec, engine.build.max_seq_len, prompt_ids, params)
    stepper, sampler = Stepper(engine), Sampler(engine.spec.vocab_size)
    eos = engine.spec.eos_token_id
    row = RowState(name="request", params=params, eos_token_id=eos, prompt_ids=prompt_ids)
    ends = params.end_token_ids(eos)
    pages = stepper.kv.open()
    todo = list(prompt_ids)
    while True:
        chunk, todo = todo[: engine.build.max_num_tokens], todo[engine.build.max_num_tokens :]
        logits = stepper.step([Chunk(pages=pages, token_ids=chunk)]).logits
        if todo:
            continue
        token = sampler.sample(logits, [row])[0]
        row.output_ids.append(token.token_id)
        shown = text.push(token.token_id) if text is not None else ""
        stopped = text.matched is not None if text is not None else token.token_id in ends
        full = len(row.output_ids) >= params.max_tokens
        if full and not stopped and text is not None:
            shown += text.finish()
            stopped = text.matched is not None
        reason = "stop" if stopped else "length" if full else None
        yield GeneratedToken(token=token, text=shown, finish_reason=reason)
        if reason is not None:
            return
        todo = [token.token_id]
