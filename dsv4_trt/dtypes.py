"""Element types of tensors on disk and in graphs, by their safetensors names.

Packed fp4 and e8m0 scales are I8 bytes in rank files and graphs: TensorRT refuses unsigned bytes
and E8M0 as plugin inputs.
"""

from __future__ import annotations

from enum import StrEnum


class DType(StrEnum):
    """A tensor element type; the value is the safetensors spelling."""

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    F8_E4M3 = "F8_E4M3"
    F8_E8M0 = "F8_E8M0"
    I64 = "I64"
    I32 = "I32"
    I16 = "I16"
    I8 = "I8"
    U8 = "U8"
    BOOL = "BOOL"

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _ITEMSIZE[self]


_ITEMSIZE = {
    DType.F32: 4,
    DType.F16: 2,
    DType.BF16: 2,
    DType.F8_E4M3: 1,
    DType.F8_E8M0: 1,
    DType.I64: 8,
    DType.I32: 4,
    DType.I16: 2,
    DType.I8: 1,
    DType.U8: 1,
    DType.BOOL: 1,
}
