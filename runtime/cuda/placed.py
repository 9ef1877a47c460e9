"""Where a tensor is on the device."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dsv4_trt.dtypes import DType


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor in device memory; strides are in elements."""

    address: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def dense(address: int, dtype: DType, shape: tuple[int, ...]) -> Placed:
        """A tensor without gaps."""
        strides = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
        return Placed(address, dtype, shape, strides)
