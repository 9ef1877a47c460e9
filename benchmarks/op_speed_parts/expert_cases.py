"""The expert layer, from bf16 tokens to their weighted sum."""

from __future__ import annotations

import torch

from op_speed_parts import inputs, peers_expert
from op_speed_parts.case import Arguments, Case

TOKENS = (1, 8, 32, 128, 512, 2048, 8192)
QUICK = (1, 32, 8192)
BANK = frozenset({"w13", "w13_scale", "w2", "w2_scale", "expert_map"})
HIDDEN, WIDTH, EXPERTS, PICKS = 4096, 2048, 256, 6


def cases() -> list[Case]:
    found = [_experts(tokens, "act8_128") for tokens in TOKENS]
    return found + [_experts(tokens, "none") for tokens in TOKENS]


def _experts(tokens: int, act: str) -> Case:
    kind = "W4A8" if act == "act8_128" else "W4A16"
    return Case(
        op="experts",
        label=f"{kind} {HIDDEN}/{WIDTH}/{EXPERTS} top {PICKS} T={tokens}",
        make=lambda: _arguments(tokens, act),
        shared=BANK,  # more than L2 holds; each set picks other experts
        vary=lambda arguments: arguments | {"expert_ids": _others(tokens)},
        peers=peers_expert.experts(tokens) if act == "act8_128" else (),
        quick=tokens in QUICK and act == "act8_128",
    )


def _others(tokens: int) -> torch.Tensor:
    return torch.rand(tokens, EXPERTS).topk(PICKS, dim=1).indices.int()


def _arguments(tokens: int, act: str) -> Arguments:
    def fp4(*shape: int) -> torch.Tensor:
        return torch.randint(-128, 128, shape, dtype=torch.int8)

    return {
        "x": inputs.bf16(tokens, HIDDEN),
        "expert_ids": torch.tensor(peers_expert.picks(tokens)),
        "weights": torch.rand(tokens, PICKS),
        "expert_map": torch.arange(EXPERTS, dtype=torch.int32),
        "w13": fp4(EXPERTS, 2 * WIDTH, HIDDEN // 2),
        "w13_scale": inputs.scales(EXPERTS, 2 * WIDTH, HIDDEN // 32),
        "w2": fp4(EXPERTS, HIDDEN, WIDTH // 2),
        "w2_scale": inputs.scales(EXPERTS, HIDDEN, WIDTH // 32),
        "weight_format": "fp4",
        "width": WIDTH,
        "pack": 2,
        "scale_rows": 1,
        "scale_cols": 32,
        "act": act,
        "swiglu_limit": 10.0,
    }
