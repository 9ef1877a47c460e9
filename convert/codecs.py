"""Number formats as bytes: exact changes between them and their inverses, in numpy.

e4m3 is float8_e4m3fn (largest 448), e8m0 the power of two `2^(byte - 127)` (255 is NaN), fp4 is e2m1, two
per byte with the even column in the low nibble. A change that would not be exact raises `InexactValue`.
Source: OCP Microscaling Formats 1.0; lossless fp4 to fp8 as in the official converter.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dsv4_trt.model_spec import MX_BLOCK, QUANT_BLOCK

Bytes = npt.NDArray[np.uint8]
E8M0_NAN = 255
E8M0_BIAS = 127
HEADROOM = 6  # 6.0, the largest fp4, times 2^6 is 384, which e4m3 holds
MX_PER_BLOCK = QUANT_BLOCK // MX_BLOCK
LOWEST_EXACT = -8  # 0.5 * 2^-8 is 2^-9, the smallest e4m3 number
SUBNORMAL_2_127 = 0x0040_0000  # 2^-127 as float32 bits


class InexactValue(ValueError):
    """An element has no exact form in the other format; `at` is its flat index in the array given."""

    def __init__(self, at: int, value: object, reason: str) -> None:
        super().__init__(f"element {at} is {value}, {reason}")
        self.at, self.value, self.reason = at, value, reason


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1 = np.concatenate([E2M1, -E2M1])


def e4m3_values() -> npt.NDArray[np.float32]:
    """Value of each of the 256 codes."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    normal = np.ldexp(1 + mantissa / 8, exponent - 7)
    value = np.where(exponent == 0, np.ldexp(mantissa / 8, -6), normal)
    value = np.where((code & 127) == 127, np.nan, value)
    return np.where(code < 128, value, -value).astype(np.float32)


E4M3 = e4m3_values()


def f32_to_e8m0(scales: npt.NDArray[np.float32]) -> Bytes:
    """Powers of two 2^-127 .. 2^127 as their exponent bytes; anything else raises `InexactValue`."""
    bits = np.ascontiguousarray(scales).view(np.uint32)
    exponent = bits >> 23
    exact = (bits & 0x7FFFFF == 0) & (exponent >= 1) & (exponent <= 254)
    exact |= bits == SUBNORMAL_2_127
    if not exact.all():
        at = int(np.argmin(exact.reshape(-1)))
        value = scales.reshape(-1)[at]
        raise InexactValue(at, value, "which is not a power of two between 2^-127 and 2^127")
    return np.where(bits == SUBNORMAL_2_127, 0, exponent).astype(np.uint8)


def e8m0_to_f32(scales: Bytes) -> npt.NDArray[np.float32]:
    """The inverse of `f32_to_e8m0`; byte 255 gives NaN."""
    bits = scales.astype(np.uint32) << 23
    bits[scales == 0] = SUBNORMAL_2_127
    bits[scales == E8M0_NAN] = 0x7FC00000
    return bits.view(np.float32)


def check_e8m0(scales: Bytes) -> Bytes:
    """The bytes as they are; the NaN code raises `InexactValue`."""
    nan = scales == E8M0_NAN
    if nan.any():
        raise InexactValue(int(np.argmax(nan.reshape(-1))), "NaN", "which no weight scale may be")
    return scales


def i64_to_i32(ids: npt.NDArray[np.int64], limit: int) -> npt.NDArray[np.int32]:
    """Expert ids 0 .. limit-1 in half the bytes; any other number raises `InexactValue`."""
    bad = (ids < 0) | (ids >= limit)
    if bad.any():
        at = int(np.argmax(bad.reshape(-1)))
        raise InexactValue(at, ids.reshape(-1)[at], f"expected an expert id below {limit}")
    return ids.astype(np.int32)


def dequantize_fp4(packed: Bytes, scales: Bytes) -> npt.NDArray[np.float64]:
    """Values [rows, inputs] of fp4 weights [rows, inputs/2] with scales [rows, inputs/32], exact."""
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1)
    exponents = scales.astype(np.int64).repeat(MX_BLOCK, axis=1) - E8M0_BIAS
    return np.ldexp(E2M1[codes].astype(np.float64), exponents)


def dequantize_fp8(codes: Bytes, scales: Bytes) -> npt.NDArray[np.float64]:
    """Values [rows, inputs] of e4m3 weights with scales [rows/128, inputs/128], exact."""
    exponents = scales.astype(np.int64).repeat(QUANT_BLOCK, axis=0).repeat(QUANT_BLOCK, axis=1)
    return np.ldexp(E4M3[codes].astype(np.float64), exponents - E8M0_BIAS)


def fp4_block_scales(scales: Bytes) -> Bytes:
    """e8m0 scales [rows, inputs/32] of fp4 to those of the same weights in fp8.

    Returns [rows/128, inputs/128]: the largest of each block's 128 x 4 scales over 2^6 (not below the
    smallest scale there is, 2^-127). Both sizes must be whole blocks.
    """
    rows, groups = scales.shape
    blocks = check_e8m0(scales).reshape(
        rows // QUANT_BLOCK, QUANT_BLOCK, groups // MX_PER_BLOCK, MX_PER_BLOCK
    )
    largest: Bytes = blocks.max(axis=(1, 3))
    return np.maximum(largest, np.uint8(HEADROOM)) - np.uint8(HEADROOM)


def fp4_to_fp8(packed: Bytes, scales: Bytes) -> Bytes:
    """fp4 weights [rows, inputs/2] with scales [rows, inputs/32] to e4m3 [rows, inputs], exactly.

    Each value becomes `fp4 * scale / block_scale` with the scales of `fp4_block_scales`; a value that
    e4m3 does not hold (a group more than 2^14 below the block's largest) raises `InexactValue`.
    """
    rows, groups = scales.shape
    base = fp4_block_scales(scales).astype(np.int16)
    base = base.repeat(QUANT_BLOCK, axis=0).repeat(MX_PER_BLOCK, axis=1)
    shift = scales.astype(np.int16) - base  # exponent that every value of the group gains
    grouped = packed.reshape(rows, groups, MX_BLOCK // 2)
    deep = shift < LOWEST_EXACT
    if deep.any():
        _check_deep(grouped, shift, deep)
    step = np.clip(shift, _LOWEST_STEP, HEADROOM) - _LOWEST_STEP
    index = (step.astype(np.uint16) << 8)[
        :, :, None
    ] | grouped  # always inside: "clip" only skips checks
    pairs: npt.NDArray[np.uint16] = _PAIR_CODES.take(index, mode="clip")
    return pairs.view(np.uint8).reshape(rows, groups * MX_BLOCK)


def _check_deep(grouped: Bytes, shift: npt.NDArray[np.int16], deep: npt.NDArray[np.bool_]) -> None:
    """Every value of the groups `deep` must still be a multiple of 2^-9, the smallest e4m3 number."""
    rows, groups = np.nonzero(deep)
    codes = np.stack([grouped[rows, groups] & 15, grouped[rows, groups] >> 4], axis=-1)
    values = np.ldexp(E2M1[codes].astype(np.float64), shift[rows, groups][:, None, None])
    bad = values != np.round(values * 512) / 512
    if bad.any():
        which = int(np.argmax(bad.reshape(len(rows), -1).any(axis=1)))
        at = int(np.argmax(bad[which].reshape(-1)))
        row, column = int(rows[which]), int(groups[which]) * MX_BLOCK + at
        value = E2M1[codes[which].reshape(-1)[at]]
        raise InexactValue(
            row * deep.shape[1] * MX_BLOCK + column,
            f"{value:g} with a scale 2^{HEADROOM - int(shift[row, groups[which]])} below the largest of "
            "its 128x128 block",
            "which e4m3 can not hold",
        )


_LOWEST_STEP = -12  # below this every exact group is all zeros: 6 * 2^-12 is under 2^-9


def _pair_codes() -> npt.NDArray[np.uint16]:
    """e4m3 codes of both values of a packed byte, by (exponent gained - _LOWEST_STEP) * 256 + byte."""
    codes = {float(value): code for code, value in enumerate(E4M3) if 0 < code < 127}
    table = np.zeros((HEADROOM - _LOWEST_STEP + 1, 256), np.uint16)
    for row in range(table.shape[0]):
        gained = np.ldexp(E2M1[:8].astype(np.float64), row + _LOWEST_STEP)
        half = [codes.get(float(value), 0) for value in gained]
        nibble = np.array(half + [code | 0x80 for code in half], np.uint16)
        byte = np.arange(256)
        table[row] = nibble[byte & 15] | nibble[byte >> 4] << 8
    return table.reshape(-1)


_PAIR_CODES = _pair_codes()
