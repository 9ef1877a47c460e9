"""Linear layers, the grouped output projection, the shared expert and the router."""

from __future__ import annotations

import torch

from op_speed_parts import inputs, peers_product
from op_speed_parts.case import Arguments, Call, Case

TOKENS = (1, 8, 32, 128, 512, 8192)
QUICK = (1, 32, 8192)
FP8 = {  # name: out features, in features
    "wqkv_a": (1536, 4096),
    "wq_b": (32768, 1024),
    "indexer wq_b": (8192, 1024),
    "wo_b": (4096, 8192),
    "shared w13": (4096, 4096),
    "shared w2": (4096, 2048),
}
PRO = {"Pro wq_b": (65536, 1536), "Pro wo_b": (7168, 16384)}
BF16 = {"compressor": (2048, 4096), "head": (129280, 4096)}
GROUPS, HEADS, DIM, RANK = 8, 64, 512, 1024
HIDDEN, WIDTH, EXPERTS, PICKS = 4096, 2048, 256, 6


def cases() -> list[Case]:
    found = [_fp8(name, *shape, m) for name, shape in FP8.items() for m in TOKENS]
    found += [_fp8(name, *shape, m) for name, shape in PRO.items() for m in (1, 128, 8192)]
    found += [_grouped(m) for m in TOKENS]
    found += [_bf16("compressor", *BF16["compressor"], m) for m in TOKENS]
    found += [_bf16("head", *BF16["head"], m) for m in (1, 8, 32, 128)]
    found += [_shared(m) for m in TOKENS] + [_router(m) for m in TOKENS]
    return found


def _fp8(name: str, rows: int, depth: int, m: int) -> Case:
    def make() -> Arguments:
        return {
            "x": inputs.bf16(m, depth),
            "weight": inputs.fp8(rows, depth),
            "scale": inputs.scales(rows // 128, depth // 128),
            "weight_format": "fp8",
            "act": "act8_128",
            "out_dtype": "BF16",
        }

    return Case(
        op="linear",
        label=f"{name} {rows}x{depth} m={m}",
        make=make,
        peers=peers_product.fp8(m, rows, depth),
        quick=m in QUICK and not name.startswith("Pro"),
    )


def _bf16(name: str, rows: int, depth: int, m: int) -> Case:
    def make() -> Arguments:
        x, weight = inputs.bf16(m, depth), inputs.bf16(rows, depth)
        options = {"weight_format": "bf16", "act": "none", "out_dtype": "F32"}
        return {"x": x, "weight": weight, **options}

    return Case(
        op="linear",
        label=f"{name} bf16 {rows}x{depth} m={m}",
        make=make,
        peers=peers_product.bf16(m, rows, depth),
        quick=m in QUICK,
    )


def _grouped(m: int) -> Case:
    depth = HEADS * DIM // GROUPS

    def make() -> Arguments:
        return {
            "x": inputs.fp8(m, HEADS, DIM),
            "x_scale": inputs.scales(m, HEADS * DIM // 128),
            "weight": inputs.fp8(GROUPS * RANK, depth),
            "scale": inputs.scales(GROUPS * RANK // 128, depth // 128),
            "groups": GROUPS,
            "act": "act8_128",
            "out_dtype": "BF16",
        }

    return Case(
        op="grouped_linear",
        label=f"wo_a {GROUPS}x({RANK}x{depth}) m={m}",
        make=make,
        peers=peers_product.grouped(m, GROUPS, RANK, depth),
        quick=m in QUICK,
    )


def _shared(m: int) -> Case:
    def make() -> Arguments:
        return {
            "x": inputs.bf16(m, HIDDEN),
            "w13": inputs.fp8(2 * WIDTH, HIDDEN),
            "w13_scale": inputs.scales(2 * WIDTH // 128, HIDDEN // 128),
            "w2": inputs.fp8(HIDDEN, WIDTH),
            "w2_scale": inputs.scales(HIDDEN // 128, WIDTH // 128),
            "width": WIDTH,
            "act": "act8_128",
            "swiglu_limit": 10.0,
            "out_dtype": "BF16",
        }

    return Case(
        op="shared_expert",
        label=f"{HIDDEN}/{WIDTH} T={m}",
        make=make,
        peers=peers_product.shared(m, HIDDEN, WIDTH),
        quick=m in QUICK,
    )


def _router(m: int) -> Case:
    def make() -> Arguments:
        return {
            "x": inputs.bf16(m, HIDDEN),
            "gate": inputs.bf16(EXPERTS, HIDDEN) / 64,
            "bias": torch.randn(EXPERTS),
            "by": "score",
            "topk": PICKS,
            "route_scale": 1.5,
        }

    return Case(
        op="router",
        label=f"{EXPERTS}x{HIDDEN} top {PICKS} T={m}",
        make=make,
        eager=_eager_router,
        quick=m in QUICK,
    )


def _eager_router(a: Arguments) -> Call:
    gate = a["gate"].t()

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        score = torch.nn.functional.softplus((a["x"] @ gate).float()).sqrt()
        ids = (score + a["bias"]).topk(a["topk"], dim=1).indices
        weight = score.gather(1, ids)
        return ids.int(), weight / weight.sum(1, keepdim=True) * a["route_scale"]

    return call
