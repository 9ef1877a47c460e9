"""What changes logits before sampling: token bitmask, logit bias, min_tokens and penalties, in that order.

Only what a request asked for costs anything: changes are lists of (row, token, value) that one indexed
update applies to all rows at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from dsv4_trt.runtime.row_state import RowState

BANNED = float("-inf")


def apply_rules(logits: torch.Tensor, rows: list[RowState]) -> torch.Tensor:
    """Logits `[num_rows, vocab]` fp32 as the rows' requests want them; the input is left alone."""
    steps = (_mask, _bias, _hold_open, _repetition, _presence_and_frequency)
    out = logits.clone()
    for step in steps:
        step(out, rows)
    return out


def _mask(logits: torch.Tensor, rows: list[RowState]) -> None:
    masked = [(i, row.bitmask) for i, row in enumerate(rows) if row.bitmask is not None]
    if not masked:
        return
    words = torch.from_numpy(np.stack([words for _, words in masked])).to(logits.device)
    bits = words[:, :, None] >> torch.arange(32, dtype=torch.int32, device=logits.device)
    allowed = (bits & 1).bool().flatten(1)[:, : logits.shape[1]]
    at = torch.tensor([i for i, _ in masked], device=logits.device)
    logits[at] = logits[at].masked_fill(~allowed, BANNED)


def _bias(logits: torch.Tensor, rows: list[RowState]) -> None:
    _add(
        logits,
        (
            (i, token_id, bias)
            for i, row in enumerate(rows)
            for token_id, bias in row.params.logit_bias.items()
        ),
    )


def _hold_open(logits: torch.Tensor, rows: list[RowState]) -> None:
    _add(
        logits,
        (
            (i, token_id, BANNED)
            for i, row in enumerate(rows)
            if row.must_not_end
            for token_id in row.params.end_token_ids(row.eos_token_id)
        ),
    )


def _repetition(logits: torch.Tensor, rows: list[RowState]) -> None:
    found = _indices(
        logits,
        (
            (i, token_id, row.params.repetition_penalty)
            for i, row in enumerate(rows)
            if row.params.repetition_penalty != 1.0
            for token_id in row.seen_ids()
        ),
    )
    if found is not None:
        row, token, penalty = found
        value = logits[row, token]
        logits[row, token] = torch.where(value > 0, value / penalty, value * penalty)


def _presence_and_frequency(logits: torch.Tensor, rows: list[RowState]) -> None:
    _add(
        logits,
        (
            (i, token_id, -(row.params.presence_penalty + count * row.params.frequency_penalty))
            for i, row in enumerate(rows)
            if row.params.presence_penalty or row.params.frequency_penalty
            for token_id, count in row.output_counts().items()
        ),
    )


def _add(logits: torch.Tensor, changes: Iterator[tuple[int, int, float]]) -> None:
    found = _indices(logits, changes)
    if found is not None:
        row, token, value = found
        logits[row, token] += value


def _indices(
    logits: torch.Tensor, changes: Iterator[tuple[int, int, float]]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Rows, tokens and values as tensors on the logits' device; None when there are none.

    No (row, token) pair comes twice, so that an indexed update is well defined.
    """
    listed = list(changes)
    if not listed:
        return None
    row, token, value = zip(*listed, strict=True)
    device = logits.device
    return (
        torch.tensor(row, device=device),
        torch.tensor(token, device=device),
        torch.tensor(value, dtype=torch.float32, device=device),
    )
