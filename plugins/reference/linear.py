"""Linear layers: weights and, where asked, inputs dequantized to fp32, one fp32 product, one rounding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dsv4_trt.model_spec import QUANT_BLOCK
from dsv4_trt.plugins.reference.codecs import FLOATS, dequantize, e4m3_decode, round_act8


def linear_input(x: Tensor, act: str) -> Tensor:
    """`x` in fp32 as a linear layer sees it: rounded through e4m3 per 128 inputs, or as it is."""
    return round_act8(x, QUANT_BLOCK) if act == "act8_128" else x.float()


def weight_values(weight: Tensor, scale: Tensor | None) -> Tensor:
    """A weight in fp32; e4m3 weights come with the scale bytes of their blocks."""
    return weight.float() if scale is None else dequantize(e4m3_decode(weight), scale)


def linear(
    *,
    x: Tensor,
    weight: Tensor,
    scale: Tensor | None = None,
    weight_format: str,
    act: str,
    out_dtype: str,
) -> dict[str, Tensor]:
    """`x [..., in]`, `weight [out, in]`, `scale [out/128, in/128]` (fp8) -> `out [..., out]`."""
    scale = scale if weight_format == "fp8" else None
    flat = linear_input(x.flatten(0, -2), act)
    out = F.linear(flat, weight_values(weight, scale)).to(FLOATS[out_dtype])
    return {"out": out.view(*x.shape[:-1], weight.shape[0])}


def grouped_linear(
    *,
    x: Tensor,
    x_scale: Tensor | None = None,
    weight: Tensor,
    scale: Tensor,
    groups: int,
    act: str,
    out_dtype: str,
) -> dict[str, Tensor]:
    """Each group of consecutive heads by its own rows of the weight.

    `x [T, N, D]`, `weight [groups * R, N / groups * D]` -> `out [T, groups * R]`. With `act` act8_128
    `x` is e4m3 with scale bytes `x_scale [T, N * D / 128]`.
    """
    tokens, rows = x.shape[0], weight.shape[0]
    flat = x.reshape(tokens, -1)
    inputs = flat.float() if x_scale is None else dequantize(e4m3_decode(flat), x_scale)
    values = weight_values(weight, scale).view(groups, rows // groups, weight.shape[1])
    out = torch.einsum("tgc,grc->tgr", inputs.view(tokens, groups, weight.shape[1]), values)
    return {"out": out.reshape(tokens, rows).to(FLOATS[out_dtype])}
