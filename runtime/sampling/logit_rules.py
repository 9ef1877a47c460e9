"""What changes logits before sampling: token bitmask, logit bias, min_tokens and penalties, in that order.

Only what a request asked for costs anything: the changes of all rows are put into one indexed update.
Rows come as {place in the batch: row}; rows of the batch that are not named are left as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from dsv4_trt.runtime.sampling.row_state import RowState

BANNED = float("-inf")

Rows: TypeAlias = Mapping[int, RowState]
# a row, token ids of it that are all different, and a value for each or for all of them
Change: TypeAlias = tuple[int, npt.NDArray[np.int64], npt.NDArray[np.float64] | float]


def apply_rules(logits: torch.Tensor, rows: Rows) -> torch.Tensor:
    """Logits `[num_rows, vocab]` fp32 as the rows' requests want them; the input is left alone."""
    steps = (_mask, _bias, _hold_open, _repetition, _presence_and_frequency)
    out = logits.clone()
    for step in steps:
        step(out, rows)
    return out


def _mask(logits: torch.Tensor, rows: Rows) -> None:
    masked = [(i, row.bitmask) for i, row in rows.items() if row.bitmask is not None]
    if not masked:
        return
    words = torch.from_numpy(np.stack([words for _, words in masked])).to(logits.device)
    bits = words[:, :, None] >> torch.arange(32, dtype=torch.int32, device=logits.device)
    allowed = (bits & 1).bool().flatten(1)[:, : logits.shape[1]]
    at = torch.tensor([i for i, _ in masked], device=logits.device)
    logits[at] = logits[at].masked_fill(~allowed, BANNED)


def _bias(logits: torch.Tensor, rows: Rows) -> None:
    biased = [(i, row.params.logit_bias) for i, row in rows.items() if row.params.logit_bias]
    _add(
        logits,
        [(i, _ids(bias), np.array([*bias.values()], dtype=np.float64)) for i, bias in biased],
    )


def _hold_open(logits: torch.Tensor, rows: Rows) -> None:
    _add(
        logits,
        [
            (i, _ids(row.params.end_token_ids(row.eos_token_id)), BANNED)
            for i, row in rows.items()
            if row.must_not_end
        ],
    )


def _repetition(logits: torch.Tensor, rows: Rows) -> None:
    found = _indices(
        logits,
        [
            (i, row.seen_ids(), row.params.repetition_penalty)
            for i, row in rows.items()
            if row.params.repetition_penalty != 1.0
        ],
    )
    if found is not None:
        row, token, penalty = found
        value = logits[row, token]
        logits[row, token] = torch.where(value > 0, value / penalty, value * penalty)


def _presence_and_frequency(logits: torch.Tensor, rows: Rows) -> None:
    changes: list[Change] = []
    for i, row in rows.items():
        presence, frequency = row.params.presence_penalty, row.params.frequency_penalty
        if presence or frequency:
            found = row.output_counts()
            changes.append(
                (i, found.ids, -(presence + found.counts.astype(np.float64) * frequency))
            )
    _add(logits, changes)


def _add(logits: torch.Tensor, changes: list[Change]) -> None:
    found = _indices(logits, changes)
    if found is not None:
        row, token, value = found
        logits[row, token] += value


def _indices(
    logits: torch.Tensor, changes: list[Change]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Rows, tokens and values as tensors on the logits' device; None when there are none.

    No (row, token) pair comes twice, so that an indexed update is well defined.
    """
    lengths = [len(ids) for _, ids, _ in changes]
    if not sum(lengths):
        return None
    row = np.repeat(np.array([i for i, _, _ in changes]), lengths)
    token = np.concatenate([ids for _, ids, _ in changes])
    value = np.concatenate([np.broadcast_to(value, ids.shape) for _, ids, value in changes])
    device = logits.device
    return (
        torch.from_numpy(row).to(device),
        torch.from_numpy(token).to(device),
        torch.from_numpy(value.astype(np.float32)).to(device),
    )


def _ids(token_ids: Collection[int]) -> npt.NDArray[np.int64]:
    return np.array([*token_ids], dtype=np.int64)
