"""Rows packed into one call of the op `sample`, and what comes back.

Only what a request asks for takes room. All inputs but the logits travel in one piece, all results in one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from dsv4_trt.plugins.reference.sampling_rules import BANNED
from dsv4_trt.runtime.sampling.row_state import RowState

SampleOp: TypeAlias = Callable[..., dict[str, torch.Tensor]]
Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Sampled:
    """What the op says of each row, on the host."""

    tokens: list[int]
    logprobs: list[float]
    status: list[int]
    top_ids: list[list[int]]
    top_logprobs: list[list[float]]


def call_sample(op: SampleOp, logits: torch.Tensor, rows: list[RowState | None]) -> Sampled:
    """Sample rows of logits `[num_rows, vocab]` fp32; None = a row whose result nobody wants."""
    num_top = max((row.params.logprobs or 0 for row in rows if row is not None), default=0)
    inputs = _to_device(pack_rows(rows, logits.shape[1]), logits.device)
    found = op(logits=logits, **inputs, num_top=num_top)
    names = ("token", "logprob", "status", "top_ids", "top_logprobs")
    words = [found[name].view(torch.int32).reshape(len(rows), -1) for name in names]
    host = torch.cat(words, dim=1).cpu().numpy()
    token, logprob, status = host[:, 0], host[:, 1:2], host[:, 2]
    top_ids, top_logprobs = host[:, 3 : 3 + num_top], host[:, 3 + num_top :]
    return Sampled(
        tokens=token.tolist(),
        logprobs=_floats(logprob)[:, 0].tolist(),
        status=status.tolist(),
        top_ids=top_ids.tolist(),
        top_logprobs=_floats(top_logprobs).tolist(),
    )


def pack_rows(rows: list[RowState | None], vocab_size: int) -> dict[str, Array]:
    """The op's inputs but the logits, by name, as int32 and float32 arrays."""
    masks = [row.bitmask for row in rows if row is not None and row.bitmask is not None]
    num_words = -(-vocab_size // 32)
    return {
        "doubles": np.array([_doubles(row) for row in rows], np.float64).view(np.int32),
        "scales": np.array([_scales(row) for row in rows], np.float32),
        "limits": _limits(rows, vocab_size),
        "masks": np.stack(masks) if masks else np.zeros((0, num_words), np.int32),
        **_lists("bias", [_bias(row) for row in rows]),
        **_lists("seen", [_seen(row) for row in rows]),
        **_lists("penalty", [_penalty(row) for row in rows]),
    }


def _doubles(row: RowState | None) -> tuple[float, float]:
    if row is None or row.params.temperature == 0:
        return 1.0, 0.0
    return row.params.top_p, row.uniform()


def _scales(row: RowState | None) -> tuple[float, float, float]:
    if row is None:
        return 0.0, 0.0, 1.0
    temperature = row.params.temperature
    if temperature > 0:  # what fp32 makes zero still is no greedy row
        temperature = max(temperature, float(np.finfo(np.float32).tiny))
    return temperature, row.params.min_p, row.params.repetition_penalty


def _limits(rows: list[RowState | None], vocab_size: int) -> Array:
    out = np.zeros((len(rows), 3), np.int32)
    num_masks = 0
    for i, row in enumerate(rows):
        mask_row = -1
        if row is not None and row.bitmask is not None:
            mask_row, num_masks = num_masks, num_masks + 1
        params = None if row is None else row.params
        top_k = min(params.top_k, vocab_size) if params else 0
        out[i] = top_k, mask_row, (params.logprobs or 0) if params else 0
    return out


def _bias(row: RowState | None) -> tuple[Array, Array | None]:
    """What is added before the repetition penalty: the bias, and `min_tokens`' bans over it."""
    if row is None:
        return _NONE, _NONE
    added = {**row.params.logit_bias}
    if row.must_not_end:
        added.update(dict.fromkeys(row.params.end_token_ids(row.eos_token_id), BANNED))
    return np.array([*added], np.int32), np.array([*added.values()], np.float32)


def _seen(row: RowState | None) -> tuple[Array, Array | None]:
    wanted = row is not None and row.params.repetition_penalty != 1.0
    return (row.seen_ids() if wanted and row is not None else _NONE), None


def _penalty(row: RowState | None) -> tuple[Array, Array | None]:
    if row is None or not (row.params.presence_penalty or row.params.frequency_penalty):
        return _NONE, _NONE
    found = row.output_counts()
    frequencies = found.counts.astype(np.float64) * row.params.frequency_penalty
    return found.ids, -(row.params.presence_penalty + frequencies)


def _lists(name: str, items: list[tuple[Array, Array | None]]) -> dict[str, Array]:
    """Ids, and values where there are any, of all rows one behind the other, and where each row starts."""
    ids = [ids for ids, _ in items]
    out = {
        f"{name}_start": np.cumsum([0, *(len(each) for each in ids)]).astype(np.int32),
        f"{name}_ids": np.concatenate(ids).astype(np.int32),
    }
    values = [values for _, values in items if values is not None]
    if values:
        out[f"{name}_values"] = np.concatenate(values).astype(np.float32)
    return out


def _to_device(arrays: dict[str, Array], device: torch.device) -> dict[str, torch.Tensor]:
    """All arrays as tensors, by one copy."""
    words = [np.ascontiguousarray(array).view(np.int32).ravel() for array in arrays.values()]
    whole = torch.from_numpy(np.concatenate(words)).to(device)
    ends = pairwise(np.cumsum([0, *(len(each) for each in words)]).tolist())
    out = {}
    for (name, array), (begin, end) in zip(arrays.items(), ends, strict=True):
        part = whole[begin:end].view(array.shape)
        out[name] = part.view(torch.float32) if array.dtype == np.float32 else part
    return out


def _floats(words: Array) -> Array:
    return np.ascontiguousarray(words).view(np.float32)


_NONE: Array = np.zeros(0, np.int32)
