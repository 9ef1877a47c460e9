"""Generates one sequence, token by token: prefill in chunks, sample, feed back, stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsv4_trt.errors import Dsv4Error, RequestError
from dsv4_trt.runtime.kv.cache import SequencePages
from dsv4_trt.runtime.request import check_request
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
    check_request(engine, prompt_ids, params)
    if params.n != 1:
        raise RequestError(f"n is {params.n}; one sequence is generated here, expected n 1")
    sampler, eos = Sampler(engine.spec.vocab_size), engine.spec.eos_token_id
    row = RowState(name="request", params=params, eos_token_id=eos, prompt_ids=prompt_ids)
    pages = stepper.kv.open()
    try:
        todo, reason = prompt_ids, None
        while reason is None:
            token = sampler.sample(_feed(stepper, pages, todo), [row])[0]
            if isinstance(token, Dsv4Error):
                raise token
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
