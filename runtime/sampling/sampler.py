"""Turns logits into tokens: for each row, in this order,

    bitmask, logit bias, min_tokens, penalties
    temperature                                  0 = the best token, ties to the lowest id
    top-k                                        exactly k, ties to the lowest id
    top-p                                        the smallest set that reaches p, at least one
    min-p                                        at least min_p times the best token's probability
    draw                                         by inverse distribution, one uniform number per row

This is the op `sample`: its reference on the CPU, its kernel on a GPU. Everything about a row follows from
that row alone. A row that can not be sampled gets an error in the place of its token; the others get the
tokens they get without it.
"""

from __future__ import annotations

import torch

from dsv4_trt.errors import Dsv4Error, EngineFault, RequestError
from dsv4_trt.plugins.reference import REFERENCES
from dsv4_trt.plugins.reference.sampling import NO_NUMBER, NOTHING_LEFT
from dsv4_trt.runtime.sampling.row_state import RowState, SampledToken
from dsv4_trt.runtime.sampling.sample_call import Sampled, SampleOp, call_sample


def sample_op(device: str) -> SampleOp:
    """The op `sample` for logits of an engine on `device`, "cpu" or "cuda"."""
    if device == "cpu":
        return REFERENCES["sample"]
    from dsv4_trt.plugins.cuda_ops import cuda_ops
    from dsv4_trt.runtime.cuda.open import device_library

    return cuda_ops(device_library())["sample"]


class Sampler:
    """Samples rows of logits over one vocabulary with the op `sample` of the logits' device."""

    def __init__(self, vocab_size: int, op: SampleOp = REFERENCES["sample"]) -> None:
        self.vocab_size = vocab_size
        self.op = op

    def sample(self, logits: torch.Tensor, rows: list[RowState]) -> list[SampledToken | Dsv4Error]:
        """One token for each row of `logits` `[num_rows, vocab]` fp32, or the error that it has.

        That is an `EngineFault` for a row with NaN or +inf, a `RequestError` for one with a bitmask of
        another vocabulary or with no token left to choose. Raises `EngineFault` for logits of another
        dtype or shape.
        """
        self._check_logits(logits, len(rows))
        if not rows:
            return []
        errors = self._check_bitmasks(rows)
        good = [None if i in errors else row for i, row in enumerate(rows)]
        found = call_sample(self.op, logits.contiguous(), good)
        for i, row in enumerate(rows):
            if i not in errors and found.status[i]:
                errors[i] = _row_error(found.status[i], i, row, logits[i])
        return [errors.get(i) or _token(found, i, row) for i, row in enumerate(rows)]

    def _check_logits(self, logits: torch.Tensor, num_rows: int) -> None:
        expected = (num_rows, self.vocab_size)
        if logits.dtype is not torch.float32 or tuple(logits.shape) != expected:
            raise EngineFault(
                f"logits are {logits.dtype} {list(logits.shape)}; "
                f"expected torch.float32 {list(expected)}"
            )

    def _check_bitmasks(self, rows: list[RowState]) -> dict[int, Dsv4Error]:
        """Errors of the rows whose bitmask can not be used, by place."""
        errors: dict[int, Dsv4Error] = {}
        for i, row in enumerate(rows):
            try:
                row.check_bitmask(self.vocab_size)
            except RequestError as error:
                errors[i] = error
        return errors


def _row_error(status: int, i: int, row: RowState, logits: torch.Tensor) -> Dsv4Error:
    """What is wrong with row `i` by what the op says of it."""
    if status == NO_NUMBER:
        return EngineFault(
            f"logits of row {i} ({row.name}) have the maximum {float(logits.amax())}; expected finite "
            "numbers, with bias and penalties as well. No token was sampled; end this request and run "
            "its tokens through 'dsv4-trt logits --precision exact' to see whether weights or "
            "kernels are at fault"
        )
    assert status == NOTHING_LEFT, f"row {i} has the status {status}"
    return RequestError(
        f"row {i} ({row.name}) has no token left to choose: its bitmask, logit_bias and "
        "min_tokens together ban the whole vocabulary; end the request, or allow the tokens "
        "that end it"
    )


def _token(found: Sampled, i: int, row: RowState) -> SampledToken:
    count = row.params.logprobs or 0
    pairs = zip(found.top_ids[i][:count], found.top_logprobs[i][:count], strict=True)
    return SampledToken(found.tokens[i], found.logprobs[i], tuple(pairs))
