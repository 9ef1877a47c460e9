"""Sampling: the best token, plain draws, draws through every filter."""

from __future__ import annotations

from functools import partial

import torch

from op_speed_parts.case import Arguments, Case

VOCAB = 129280
ROWS = (1, 32, 256)
KINDS = {  # temperature, top_k, top_p, min_p
    "greedy": (0.0, 0, 1.0, 0.0),
    "plain": (1.0, 0, 1.0, 0.0),
    "top_p": (1.0, 0, 0.95, 0.0),
    "all filters": (0.8, 400, 0.95, 0.01),
}


def cases() -> list[Case]:
    return [
        Case(
            op="sample",
            label=f"{kind} R={rows}",
            make=partial(_sample, rows, *numbers),
            quick=rows == ROWS[1],
        )
        for kind, numbers in KINDS.items()
        for rows in ROWS
    ]


def _sample(rows: int, temperature: float, top_k: int, top_p: float, min_p: float) -> Arguments:
    doubles = torch.rand(rows, 2, dtype=torch.float64)  # top_p and the draw
    doubles[:, 0] = top_p
    scales, limits = torch.ones(rows, 3), torch.zeros(rows, 3, dtype=torch.int32)
    scales[:, 0], scales[:, 1] = temperature, min_p
    limits[:, 0], limits[:, 1] = top_k, -1
    return {
        "logits": torch.randn(rows, VOCAB) * 3,
        "scales": scales,
        "doubles": doubles.view(torch.int32),
        "limits": limits,
        "masks": torch.zeros(0, -(-VOCAB // 32), dtype=torch.int32),
        **{
            f"{name}_start": torch.zeros(rows + 1, dtype=torch.int32)
            for name in ("bias", "seen", "penalty")
        },
        **{
            f"{name}_ids": torch.zeros(0, dtype=torch.int32) for name in ("bias", "seen", "penalty")
        },
        **{f"{name}_values": torch.zeros(0) for name in ("bias", "penalty")},
        "num_top": 0,
    }
