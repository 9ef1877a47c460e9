"""Residual streams, norms, embedding and sums."""

from __future__ import annotations

from collections.abc import Callable

import torch

from op_speed_parts import eager_residual, inputs, peers_residual
from op_speed_parts.case import Arguments, Case

TOKENS = (1, 8, 32, 128, 512, 8192)
QUICK = (1, 128, 8192)
FLASH, PRO, STREAMS, VOCAB = 4096, 7168, 4, 129280
SITE = {"eps": 1e-6, "hc_eps": 1e-6, "iters": 20}
WEIGHTS = frozenset({"base", "scale"})


def cases() -> list[Case]:
    found = [_site(op, tokens, FLASH) for op in _SITES for tokens in TOKENS]
    found += [_site("mhc_post_pre", tokens, PRO) for tokens in QUICK]
    found += [
        Case(
            op=op,
            label=f"H={FLASH} T={tokens}",
            make=lambda op=op, tokens=tokens: _ROWS[op](tokens),
            shared=frozenset({"weight"}) if op == "embed" else frozenset(),
            quick=tokens in (1, 8192),
        )
        for op in _ROWS
        for tokens in QUICK
    ]
    return found


def _site(op: str, tokens: int, hidden: int) -> Case:
    return Case(
        op=op,
        label=f"H={hidden} T={tokens}",
        make=lambda: _SITES[op](tokens, hidden),
        shared=WEIGHTS,
        peers=peers_residual.site(op, tokens, hidden),
        eager=eager_residual.EAGER[op],
        quick=tokens in QUICK and hidden == FLASH,
    )


def _entered(hidden: int, mix: int = 24) -> Arguments:
    """Weights of a site."""
    return {
        "fn": torch.randn(mix, STREAMS * hidden) / (STREAMS * hidden) ** 0.5,
        "base": torch.randn(mix),
        "scale": torch.rand(3 if mix == 24 else 1) + 0.5,
        "norm_weight": inputs.bf16(hidden),
    }


def _left(tokens: int, hidden: int) -> Arguments:
    """What a site is left with."""
    return {
        "y": inputs.bf16(tokens, hidden),
        "streams": inputs.bf16(tokens, STREAMS, hidden),
        "post": torch.rand(tokens, STREAMS),
        "comb": torch.randn(tokens, STREAMS, STREAMS).softmax(-1),
    }


def _pre(tokens: int, hidden: int) -> Arguments:
    return {"streams": inputs.bf16(tokens, STREAMS, hidden), **_entered(hidden), **SITE}


def _post_pre(tokens: int, hidden: int) -> Arguments:
    return {**_left(tokens, hidden), **_entered(hidden), **SITE}


def _head(tokens: int) -> Arguments:
    return {
        "streams": inputs.bf16(tokens, STREAMS, FLASH),
        "rows": torch.arange(tokens, dtype=torch.int32),
        **_entered(FLASH, STREAMS),
        "eps": 1e-6,
        "hc_eps": 1e-6,
    }


def _qkv_norm(tokens: int) -> Arguments:
    weights = {"q_weight": inputs.bf16(1024), "kv_weight": inputs.bf16(512)}
    return {"x": inputs.bf16(tokens, 1536), **weights, "eps": 1e-6}


def _rms_norm(tokens: int) -> Arguments:
    return {"x": inputs.bf16(tokens, FLASH), "weight": inputs.bf16(FLASH), "eps": 1e-6}


def _embed(tokens: int) -> Arguments:
    return {
        "token_ids": torch.randint(0, VOCAB, (tokens,), dtype=torch.int32),
        "weight": inputs.bf16(VOCAB, FLASH),
        "row_offset": torch.zeros(1, dtype=torch.int32),
        "out_dtype": "BF16",
    }


def _add(tokens: int) -> Arguments:
    a, b = torch.randn(tokens, FLASH), inputs.bf16(tokens, FLASH)
    return {"a": a, "b": b, "out_dtype": "BF16"}


def _expand(tokens: int) -> Arguments:
    return {"x": inputs.bf16(tokens, FLASH), "hc_mult": STREAMS}


def _add_streams(tokens: int) -> Arguments:
    return {"x": inputs.bf16(tokens, FLASH), "streams": inputs.bf16(tokens, STREAMS, FLASH)}


_SITES: dict[str, Callable[[int, int], Arguments]] = {
    "mhc_pre": _pre,
    "mhc_post": _left,
    "mhc_post_pre": _post_pre,
}
_ROWS: dict[str, Callable[[int], Arguments]] = {
    "qkv_norm": _qkv_norm,
    "rms_norm": _rms_norm,
    "embed": _embed,
    "add": _add,
    "expand_streams": _expand,
    "add_streams": _add_streams,
    "mhc_head": _head,
}
