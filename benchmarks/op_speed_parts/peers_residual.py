"""Residual streams by DeepGEMM's projection and FlashInfer's kernels around it."""

from __future__ import annotations

import torch
from torch import Tensor

from op_speed_parts import kit
from op_speed_parts.case import Call, Peer

GPU, STREAMS, MIX = "cuda", 4, 24
NORM = "without the layer's norm"


def site(op: str, tokens: int, hidden: int) -> tuple[Peer, ...]:
    if hidden != 4096:
        return ()
    projects = op != "mhc_post"
    return (
        Peer(
            name="FlashInfer + DeepGEMM" if projects else "FlashInfer",
            build=lambda count: [_site(op, tokens, hidden) for _ in range(count)],
            compiled=f"DeepGEMM mhc {tokens > 512}" if projects else "",
            remark=NORM if projects else "",
        ),
    )


def _site(op: str, tokens: int, hidden: int) -> Call:
    options = {"device": GPU, "dtype": torch.bfloat16}
    streams, y = (
        torch.randn(tokens, STREAMS, hidden, **options),
        torch.randn(tokens, hidden, **options),
    )
    if op == "mhc_pre":
        pre = _pre(tokens, hidden)
        return lambda: pre(streams)
    put_back = kit.module("mhc_post")["mhc_post"]
    after = torch.empty_like(streams)
    post = torch.rand(tokens, STREAMS, device=GPU)
    comb = torch.randn(tokens, STREAMS, STREAMS, device=GPU).softmax(-1)
    if op == "mhc_post":
        return lambda: put_back(after, y, streams, post, comb)
    pre = _pre(tokens, hidden)

    def call() -> None:
        put_back(after, y, streams, post, comb)
        pre(after)

    return call


def _pre(tokens: int, hidden: int):  # type: ignore[no-untyped-def]
    project = kit.package("deep_gemm").tf32_hc_prenorm_gemm
    fuse = kit.module("mhc_pre")["mhc_pre_big_fuse"]
    depth, splits = STREAMS * hidden, 16 if tokens <= 512 else 1
    fn = torch.randn(MIX, depth, device=GPU) / depth**0.5
    scale, base = torch.rand(3, device=GPU) + 0.5, torch.randn(MIX, device=GPU)
    post = torch.empty(tokens, STREAMS, device=GPU)
    comb = torch.empty(tokens, STREAMS, STREAMS, device=GPU)
    x = torch.empty(tokens, hidden, device=GPU, dtype=torch.bfloat16)
    dots = torch.empty(splits, tokens, MIX, device=GPU)
    squares = torch.empty(splits, tokens, device=GPU)
    parts = (dots, squares) if splits > 1 else (dots[0], squares[0])

    def call(streams: Tensor) -> None:
        project(streams.view(tokens, depth), fn, dots, squares, splits)
        fuse(
            post, comb, x, *parts, streams, scale, base, depth, 1e-6, 1e-6, 1e-6, 2.0, 20, splits, 0
        )  # fmt: skip

    return call
