"""DeepGEMM's products of fp8 blocks, and cuBLAS's of bf16.

DeepGEMM's activations are quantized before the timed region, with their scales in the layout it wants;
our ops quantize them inside. Rows say so.
"""

from __future__ import annotations

import torch
from torch import Tensor

from op_speed_parts import kit
from op_speed_parts.case import Call, Peer

GPU = "cuda"
QUANTIZED = "its input comes quantized"


def _fp8(*shape: int) -> Tensor:
    return torch.randn(*shape, device=GPU, dtype=torch.bfloat16).to(torch.float8_e4m3fn)


def _row_scales(*shape: int) -> Tensor:
    """Scales `[..., m, blocks]`, the rows innermost in memory and padded to 16 bytes."""
    *lead, m, blocks = shape
    padded = torch.rand(*lead, blocks, -(-m // 4) * 4, device=GPU) + 0.5
    return padded.transpose(-1, -2)[..., :m, :]


def _weight(*shape: int) -> tuple[Tensor, Tensor]:
    *lead, rows, depth = shape
    return _fp8(*shape), torch.rand(*lead, rows // 128, depth // 128, device=GPU) + 0.5


def _product(m: int, rows: int, depth: int) -> Call:
    gemm = kit.package("deep_gemm").fp8_gemm_nt
    x, weight = (_fp8(m, depth), _row_scales(m, depth // 128)), _weight(rows, depth)
    out = torch.empty(m, rows, device=GPU, dtype=torch.bfloat16)
    return lambda: gemm(x, weight, out)


def fp8(m: int, rows: int, depth: int) -> tuple[Peer, ...]:
    return (
        Peer(
            name="DeepGEMM",
            build=lambda count: [_product(m, rows, depth) for _ in range(count)],
            compiled=f"DeepGEMM {m} {rows} {depth}",
            remark=QUANTIZED,
        ),
    )


def shared(m: int, hidden: int, width: int) -> tuple[Peer, ...]:
    """Both products of a SwiGLU, without what lies between them."""

    def one() -> Call:
        up, down = _product(m, 2 * width, hidden), _product(m, hidden, width)
        return lambda: (up(), down())

    return (
        Peer(
            name="DeepGEMM",
            build=lambda count: [one() for _ in range(count)],
            remark="its two products alone, inputs quantized",
        ),
    )


def grouped(m: int, groups: int, rows: int, depth: int) -> tuple[Peer, ...]:
    def one() -> Call:
        einsum = kit.package("deep_gemm").fp8_einsum
        x = _fp8(m, groups, depth), _row_scales(groups, m, depth // 128).transpose(0, 1)
        weight = _weight(groups, rows, depth)
        out = torch.empty(m, groups, rows, device=GPU, dtype=torch.bfloat16)
        return lambda: einsum("bhr,hdr->bhd", x, weight, out)

    return (
        Peer(
            name="DeepGEMM",
            build=lambda count: [one() for _ in range(count)],
            compiled=f"DeepGEMM einsum {m}",
        ),
    )


def bf16(m: int, rows: int, depth: int) -> tuple[Peer, ...]:
    def one() -> Call:
        x = torch.randn(m, depth, device=GPU, dtype=torch.bfloat16)
        weight = torch.randn(rows, depth, device=GPU, dtype=torch.bfloat16)
        out = torch.empty(m, rows, device=GPU, dtype=torch.bfloat16)
        return lambda: torch.mm(x, weight.t(), out=out)

    return (
        Peer(
            name="cuBLAS",
            build=lambda count: [one() for _ in range(count)],
            remark="output in bf16, ours in fp32",
        ),
    )
