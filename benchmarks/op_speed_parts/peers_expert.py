"""humming's W4A8 expert layer: its two products over sorted tokens, and what belongs around them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from op_speed_parts import kit
from op_speed_parts.case import Call, Peer

GPU = "cuda"
HIDDEN, WIDTH, EXPERTS, PICKS = 4096, 2048, 256, 6
REMARK = "routing sorted before; no clamp in its SwiGLU"


def experts(tokens: int) -> tuple[Peer, ...]:
    def build(count: int) -> list[Call]:
        return [_layer_call(tokens, index) for index in range(count)]

    return (
        Peer(
            name="humming W4A8",
            build=build,
            compiled=f"humming {max(tokens, 32):05}",
            remark=REMARK,
        ),
    )


def picks(tokens: int, index: int = 0) -> npt.NDArray[np.int32]:
    """Random experts of each token; the same for everybody, as how many are hit decides the time."""
    score = np.random.default_rng((tokens, index)).random((tokens, EXPERTS), np.float32)
    return np.argpartition(score, PICKS, axis=1)[:, :PICKS].astype(np.int32)


@cache
def _layers() -> tuple[Any, Any]:
    """Both products with MXFP4 weights in humming's order."""
    kit.package("humming")
    from humming.jit.compiler import Compiler
    from humming.layer import HummingLayer

    # file times in its cache keys would compile everything anew in each installation
    Compiler.cuh_last_update_time = staticmethod(lambda: "")
    return tuple(
        _layer(HummingLayer, rows, depth) for rows, depth in ((2 * WIDTH, HIDDEN), (HIDDEN, WIDTH))
    )  # type: ignore[return-value]


def _layer(layer_class: Any, rows: int, depth: int) -> Any:
    with torch.device(GPU):
        layer = layer_class(
            shape_n=rows,
            shape_k=depth,
            num_experts=EXPERTS,
            weight_config={"quant_method": "mxfp4"},
            torch_dtype=torch.bfloat16,
            input_config={"quant_method": "humming", "dtype": "float8e4m3"},
        )
        weight = torch.randint(0, 256, (EXPERTS, rows, depth // 2), dtype=torch.uint8)
        scale = torch.randint(116, 121, (EXPERTS, rows, depth // 32), dtype=torch.uint8)
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    layer.weight_scale = torch.nn.Parameter(scale, requires_grad=False)
    layer.transform()
    return layer


def _sorted(ids: Tensor, block: int) -> dict[str, Tensor]:
    """Assignments by expert, each expert's padded to whole blocks of rows."""
    flat = ids.flatten()
    total, counts = flat.numel(), torch.bincount(flat, minlength=EXPERTS)
    order = torch.argsort(flat, stable=True)
    room = (counts + block - 1) // block * block
    shift = (room.cumsum(0) - room) - (counts.cumsum(0) - counts)
    rows = torch.full((int(room.sum()),), total, dtype=torch.int32, device=GPU)
    rows[shift[flat[order]] + torch.arange(total, device=GPU)] = order.int()
    owner = torch.arange(EXPERTS, dtype=torch.int32, device=GPU).repeat_interleave(room // block)
    return {"sorted_ids": rows, "expert_ids": owner, "num_tokens_padded": room.sum().int().view(1)}


def _layer_call(tokens: int, index: int) -> Call:
    up, down = _layers()
    from humming import ops
    from humming.tune import get_heuristics_config

    silu_and_mul = kit.torch_ops("sgl_kernel", "sm90/common_ops.abi3.so").silu_and_mul
    total, kind = tokens * PICKS, "indexed"
    tuned = [
        get_heuristics_config(layer.humming_metas[""], shape_m=total, gemm_type=kind)
        for layer in (up, down)
    ]
    ids = torch.tensor(picks(tokens, index), device=GPU).long()
    common: dict[str, Any] = {
        **_sorted(ids, tuned[0]["block_shape"][0]),
        "compute_config": json.dumps({"gemm_type": kind}),
        "valid_shape_m": total,
    }
    configs = [json.dumps(config) for config in tuned]
    options = {"device": GPU, "dtype": torch.bfloat16}
    x, weights = torch.randn(tokens, HIDDEN, **options), torch.rand(tokens, PICKS, device=GPU)
    both, inner, outer = (torch.empty(total, n, **options) for n in (2 * WIDTH, WIDTH, HIDDEN))

    def product(layer: Any, values: Tensor, out: Tensor, config: str, top_k: int) -> None:
        codes, scale = ops.quant_input(values, "float8e4m3", group_size=0)
        layer(codes, outputs=out, input_scale=scale, top_k=top_k, tuning_config=config, **common)

    def call() -> Tensor:
        product(up, x, both, configs[0], PICKS)
        silu_and_mul(inner, both)
        product(down, inner, outer, configs[1], 1)
        return ops.moe_fused_mul_sum(outer.view(tokens, PICKS, HIDDEN), weights)

    return call
