"""Generates one sequence, token by token: prefill in chunks, sample, feed back, stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsv4_trt.errors import RequestError
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.runtime.kv.cache import SequencePages
from dsv4_trt.runtime.row_state import RowState, SampledToken
from dsv4_trt.runtime.sampler import Sampler
from dsv4_trt.runtime.sampling_params import SamplingParams
from dsv4_trt.runtime.stepper import Chunk, Stepper
from dsv4_trt.runtime.text_stream import TextStream

if TYPE_CHECKING:
    import torch


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
    stepper: Stepper,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    text: TextStream | None = None,
) -> Iterator[GeneratedToken]:
    """Yield tokens until a stop or `max_tokens`; without `text` only token ids stop it.

    Several may run in turn on one stepper. Each holds its pages until it ends or is closed.
    """
    engine = stepper.engine
    check_request(engine.spec, engine.build.max_seq_len, prompt_ids, params)
    sampler, eos = Sampler(engine.spec.vocab_size), engine.spec.eos_token_id
    row = RowState(name="request", params=params, eos_token_id=eos, prompt_ids=prompt_ids)
    pages = stepper.kv.open()
    try:
        todo, reason = prompt_ids, None
        while reason is None:
            token = sampler.sample(_feed(stepper, pages, todo), [row])[0]
            row.output_ids.append(token.token_id)
            shown, reason = _advance(row, text)
            yield GeneratedToken(token=token, text=shown, finish_reason=reason)
            todo = [token.token_id]
    finally:
        stepper.kv.close(pages)


def _feed(stepper: Stepper, pages: SequencePages, token_ids: Sequence[int]) -> torch.Tensor:
    """Logits `[1, vocab]` after the last of `token_ids`, fed in chunks as large as the engine takes."""
    size = stepper.engine.build.max_num_tokens
    *before, last = (token_ids[at : at + size] for at in range(0, len(token_ids), size))
    for chunk in before:
        stepper.step([Chunk(pages=pages, token_ids=chunk)])
    return stepper.step([Chunk(pages=pages, token_ids=last)]).logits


def _advance(row: RowState, text: TextStream | None) -> tuple[str, str | None]:
    """Text that the newest output token completed, and the finish reason if it was the last."""
    token_id, full = row.output_ids[-1], len(row.output_ids) >= row.params.max_tokens
    if text is None:
        shown, stopped = "", token_id in row.params.end_token_ids(row.eos_token_id)
    else:
        shown = text.push(token_id)
        if full and text.matched is None:
            shown += text.finish()
        stopped = text.matched is not None
    return shown, "stop" if stopped else "length" if full else None
