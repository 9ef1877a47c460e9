"""What the engine brought, as output tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dsv4_trt.runtime.completion_output import CompletionOutput
from dsv4_trt.runtime.sampling.row_state import SampledToken
from dsv4_trt.runtime.triton.ask import Ask
from dsv4_trt.runtime.triton.tensors import BOOL, FP32, INT32, OUTPUTS, STRING, UINT64

Tensors = dict[str, npt.NDArray[Any]]
DTYPES = {STRING: np.object_, BOOL: np.bool_, INT32: np.int32, UINT64: np.uint64, FP32: np.float32}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One sequence in one response."""

    batch_index: int  # which prompt
    output: CompletionOutput
    num_input_tokens: int
    text: str  # what this response tells of it
    tokens: Sequence[SampledToken]


_VALUES: dict[str, Callable[[Row], Any]] = {
    "text_output": lambda row: row.text.encode("utf-8"),
    "batch_index": lambda row: row.batch_index,
    "sequence_index": lambda row: row.output.index,
    "finish_reason": lambda row: (row.output.finish_reason or "").encode(),
    "stop_reason": lambda row: _stop_reason(row.output).encode("utf-8"),
    "cum_log_probs": lambda row: row.output.cumulative_logprob,
    "cumulative_logprob": lambda row: row.output.cumulative_logprob,
    "output_log_probs": lambda row: [token.logprob for token in row.tokens],
    "num_input_tokens": lambda row: row.num_input_tokens,
    "num_output_tokens": lambda row: row.output.length,
    "output_ids": lambda row: [token.token_id for token in row.tokens],
    "sequence_length": lambda row: len(row.tokens),
}
_AT_THE_END = ("finish_reason", "stop_reason")


def answer(ask: Ask, rows: Sequence[Row], *, has_batch_dim: bool) -> Tensors:
    """Tensors of a response with these rows, all sequences of one prompt or all of all prompts.

    Shapes: `[rows]`, or with a batch dimension `[prompts, sequences]`; rows of tokens have one
    dimension more, as long as the longest, filled up with `pad_id` and 0.
    """
    lead = [len(rows)]
    if has_batch_dim:
        num_prompts = len({row.batch_index for row in rows})
        lead = [num_prompts, len(rows) // num_prompts]
    ends = any(row.output.finish_reason is not None for row in rows)
    found: Tensors = {}
    for name, output in OUTPUTS.items():
        if name not in ask.outputs or (name in _AT_THE_END and not ends):
            continue
        values = [_VALUES[name](row) for row in rows]
        if output.is_row:
            values = _padded(values, ask.pad_id if name == "output_ids" else 0.0)
        array = np.array(values, dtype=DTYPES[output.data_type])
        found[name] = array.reshape([*lead, array.shape[-1]] if output.is_row else lead)
    return found


def stopped(*, has_batch_dim: bool) -> Tensors:
    """The answer of a request that stopped another one."""
    texts = {"text_output": b"", "finish_reason": b"cancelled"}
    shape = (1, 1) if has_batch_dim else (1,)
    return {name: np.array([text], dtype=np.object_).reshape(shape) for name, text in texts.items()}


def _padded(rows: list[list[Any]], filler: float) -> list[list[Any]]:
    longest = max(map(len, rows))
    return [row + [filler] * (longest - len(row)) for row in rows]


def _stop_reason(output: CompletionOutput) -> str:
    """The stop string, or the id of the token that ended the sequence; empty where nothing stopped it."""
    return "" if output.stop_reason is None else str(output.stop_reason)
