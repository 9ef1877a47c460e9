"""TensorRT's structures for plugins in ctypes, as `NvInferRuntime.h` has them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

MAX_DIMS = 8
LINEAR = 0  # TensorFormat::kLINEAR
TYPES = {"FLOAT": 0, "HALF": 1, "INT8": 2, "INT32": 3, "BOOL": 4, "UINT8": 5, "FP8": 6}
TYPES |= {"BF16": 7, "INT64": 8, "INT4": 9, "FP4": 10, "E8M0": 11}
FIELD_TYPES = {"FLOAT16": 0, "FLOAT32": 1, "FLOAT64": 2, "INT8": 3, "INT16": 4, "INT32": 5}
FIELD_TYPES |= {"CHAR": 6, "DIMS": 7, "UNKNOWN": 8, "BF16": 9, "INT64": 10}


class DimsArg(ctypes.Structure):
    """`Dims`."""

    _fields_ = (("rank", ctypes.c_int32), ("sizes", ctypes.c_int64 * MAX_DIMS))


class DescArg(ctypes.Structure):
    """`PluginTensorDesc`."""

    _fields_ = (
        ("dims", DimsArg),
        ("type", ctypes.c_int32),
        ("format", ctypes.c_int32),
        ("scale", ctypes.c_float),
    )


class RangeArg(ctypes.Structure):
    """`DynamicPluginTensorDesc`."""

    _fields_ = (("desc", DescArg), ("least", DimsArg), ("most", DimsArg), ("best", DimsArg))


class FieldArg(ctypes.Structure):
    """`PluginField`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("type", ctypes.c_int32),
        ("length", ctypes.c_int32),
    )


class FieldsArg(ctypes.Structure):
    """`PluginFieldCollection`."""

    _fields_ = (("count", ctypes.c_int32), ("fields", ctypes.POINTER(FieldArg)))


class ShapeArg(ctypes.Structure):
    """The harness's `Shape`: each dimension is text."""

    _fields_ = (("rank", ctypes.c_int32), ("dims", (ctypes.c_char * 64) * MAX_DIMS))


def dims_arg(shape: Sequence[int]) -> DimsArg:
    """Sizes as `Dims`."""
    return DimsArg(len(shape), (ctypes.c_int64 * MAX_DIMS)(*shape[:MAX_DIMS]))


def desc_arg(type_name: str, shape: Sequence[int], layout: int = LINEAR) -> DescArg:
    """A tensor's type, shape and format."""
    return DescArg(dims_arg(shape), TYPES[type_name], layout, 1.0)


def shape_arg(shape: Sequence[int | str]) -> ShapeArg:
    """A shape of numbers and of names for sizes that are not known yet."""
    made = ShapeArg(len(shape))
    for index, dim in enumerate(shape[:MAX_DIMS]):
        made.dims[index].value = str(dim).encode()
    return made


def shape_of(arg: ShapeArg) -> tuple[int | str, ...]:
    """What `shape_arg` made."""
    texts = [arg.dims[index].value.decode() for index in range(arg.rank)]
    return tuple(int(text) if text.lstrip("-").isdigit() else text for text in texts)
