"""What changes logits before sampling: bitmask, bias, repetition and added penalties, in that order."""

from __future__ import annotations

import torch

BANNED = float("-inf")


def apply_rules(
    logits: torch.Tensor,
    repetition: torch.Tensor,
    mask_rows: torch.Tensor,
    *,
    masks: torch.Tensor,
    bias_start: torch.Tensor,
    bias_ids: torch.Tensor,
    bias_values: torch.Tensor,
    seen_start: torch.Tensor,
    seen_ids: torch.Tensor,
    penalty_start: torch.Tensor,
    penalty_ids: torch.Tensor,
    penalty_values: torch.Tensor,
) -> torch.Tensor:
    """Logits `[num_rows, vocab]` fp32 as the rows' requests want them; the input is left alone."""
    out = logits.clone()
    _mask(out, mask_rows, masks)
    if len(bias_ids):
        out[_rows_of(bias_start), bias_ids.long()] += bias_values
    if len(seen_ids):
        row, token = _rows_of(seen_start), seen_ids.long()
        value, penalty = out[row, token], repetition[row]
        out[row, token] = torch.where(value > 0, value / penalty, value * penalty)
    if len(penalty_ids):
        out[_rows_of(penalty_start), penalty_ids.long()] += penalty_values
    return out


def _mask(logits: torch.Tensor, mask_rows: torch.Tensor, masks: torch.Tensor) -> None:
    masked = (mask_rows >= 0).nonzero().squeeze(-1)
    if not len(masked):
        return
    words = masks[mask_rows[masked].long()]
    bits = words[:, :, None] >> torch.arange(32, dtype=torch.int32, device=logits.device)
    allowed = (bits & 1).bool().flatten(1)[:, : logits.shape[1]]
    logits[masked] = logits[masked].masked_fill(~allowed, BANNED)


def _rows_of(start: torch.Tensor) -> torch.Tensor:
    """The row of each item of the lists that start there."""
    lengths = (start[1:] - start[:-1]).long()
    return torch.arange(len(lengths), device=start.device).repeat_interleave(lengths)
