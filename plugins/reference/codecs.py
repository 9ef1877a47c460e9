"""Number formats: e4m3, e8m0 and e2m1 as bytes, and the quantizers act8 and act4.

    e4m3   float8_e4m3fn, largest value 448
    e8m0   one byte per scale, 2^(byte - 127); byte 255 is NaN
    e2m1   codes 0..7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6, codes 8..15 their negatives; two codes a byte,
           the low nibble first

Scales are powers of two, so that quantizing divides and dequantizing multiplies without rounding.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from dsv4_trt.model_spec import MX_BLOCK

FLOATS = {"F32": torch.float32, "BF16": torch.bfloat16}  # by the op table's names

E4M3 = torch.float8_e4m3fn
E4M3_MAX = 448.0
E2M1_MAX = 6.0
E2M1_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
ACT8_FLOOR = 1e-4  # least amax of an act8 block
ACT4_FLOOR = 6 * 2.0**-126  # least amax of an act4 block


def e8m0_decode(scale: Tensor) -> Tensor:
    """Scale bytes (int8 or uint8) to fp32."""
    return scale.view(torch.float8_e8m0fnu).float()


def e8m0_ceil(x: Tensor) -> Tensor:
    """int8 bytes of the least power of two that is not below `x` (fp32, positive); NaN gives 255."""
    bits = x.view(torch.int32)
    exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0)
    return exponent.clamp_(max=255).to(torch.uint8).view(torch.int8)


def act8(x: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Quantize to e4m3 with one e8m0 scale per `block` channels.

    `x [..., n]` gives codes of the same shape and scale bytes int8 `[..., n / block]`.
    """
    grouped = torch.unflatten(x.float(), -1, (-1, block))
    amax = grouped.abs().amax(-1).clamp_(min=ACT8_FLOOR)
    scale = e8m0_ceil(amax * (1 / E4M3_MAX))
    scaled = grouped / e8m0_decode(scale).unsqueeze(-1)
    return scaled.clamp_(-E4M3_MAX, E4M3_MAX).to(E4M3).flatten(-2), scale


def act4(x: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize to e2m1 with one e8m0 scale per 32 channels.

    `x [..., n]` gives packed codes int8 `[..., n / 2]` and scale bytes int8 `[..., n / 32]`.
    """
    grouped = torch.unflatten(x.float(), -1, (-1, MX_BLOCK))
    amax = grouped.abs().amax(-1).clamp_(min=ACT4_FLOOR)
    scale = e8m0_ceil(amax * (1 / E2M1_MAX))
    codes = e2m1_encode((grouped / e8m0_decode(scale).unsqueeze(-1)).flatten(-2))
    return pack_nibbles(codes), scale


def e2m1_encode(x: Tensor) -> Tensor:
    """Codes (uint8) of the nearest e2m1 values; ties go to the even code, too large ones saturate."""
    bounds = torch.tensor((0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0), device=x.device)
    magnitude = x.abs()
    code = torch.bucketize(magnitude, bounds)  # a tie goes to the lower code ...
    tie = magnitude == bounds[code.clamp(max=6)]
    code += tie & (code % 2 == 1)  # ... unless the upper one is even
    return (code + 8 * torch.signbit(x)).to(torch.uint8)


def pack_nibbles(codes: Tensor) -> Tensor:
    """Codes 0..15 `[..., n]` to bytes int8 `[..., n / 2]`, even channels in the low nibble."""
    return (codes[..., 0::2] | (codes[..., 1::2] << 4)).view(torch.int8)


def unpack_nibbles(packed: Tensor) -> Tensor:
    """The inverse of `pack_nibbles`."""
    both = packed.view(torch.uint8)
    return torch.stack((both & 0xF, both >> 4), dim=-1).flatten(-2)


def e4m3_decode(codes: Tensor) -> Tensor:
    """Codes (e4m3 or bytes) `[..., n]`, n even, to fp32."""
    index = codes.view(torch.int16).int().bitwise_and_(0xFFFF)
    return _decode_pairs(_e4m3_pairs(codes.device), index)


def e2m1_decode(packed: Tensor) -> Tensor:
    """Packed codes `[..., n / 2]` to fp32 `[..., n]`."""
    return _decode_pairs(_e2m1_pairs(packed.device), packed.view(torch.uint8).int())


def dequantize(values: Tensor, scale: Tensor) -> Tensor:
    """Multiply fp32 `values [..., rows, cols]`, in place, by the e8m0 scale bytes of their blocks.

    `scale [..., row_blocks, col_blocks]` says by its shape how large a block is.
    """
    rows = values.shape[-2] // max(scale.shape[-2], 1)
    cols = values.shape[-1] // scale.shape[-1]
    blocks = torch.unflatten(values, -1, (scale.shape[-1], cols))
    blocks = torch.unflatten(blocks, -3, (scale.shape[-2], rows))
    blocks.mul_(e8m0_decode(scale)[..., :, None, :, None])
    return values


def round_act8(x: Tensor, block: int) -> Tensor:
    """What `x [rows, n]` is after act8, as fp32."""
    codes, scale = act8(x, block)
    return dequantize(e4m3_decode(codes), scale)


def _decode_pairs(table: Tensor, index: Tensor) -> Tensor:
    # one 8-byte element per pair: several times faster on CPU than a conversion per value
    pairs = table.index_select(0, index.flatten())
    return pairs.view(torch.float32).view(*index.shape[:-1], 2 * index.shape[-1])


@cache
def _e4m3_pairs(device: torch.device) -> Tensor:
    both = torch.arange(1 << 16, dtype=torch.int32, device=device).to(torch.int16)
    return both.view(E4M3).float().view(torch.int64)


@cache
def _e2m1_pairs(device: torch.device) -> Tensor:
    table = torch.tensor(E2M1_MAGNITUDES, device=device)
    codes = unpack_nibbles(torch.arange(256, dtype=torch.uint8, device=device))
    return torch.cat((table, -table))[codes.long()].view(torch.int64)
