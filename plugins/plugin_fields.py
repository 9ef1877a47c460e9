"""A plugin's attributes as TensorRT's fields, as they lie in memory: what the harness hands over."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsv4_trt.graph import Attr
from dsv4_trt.plugins.op_schema import Op
from dsv4_trt.plugins.plugin_names import ATTR_FIELD_TYPES
from dsv4_trt.plugins.plugin_structures import FIELD_TYPES, FieldArg, FieldsArg

_NUMBERS = {"INT32": "i", "INT64": "q", "FLOAT32": "f", "FLOAT64": "d"}


@dataclass(frozen=True, slots=True)
class Field:
    """A plugin's attribute as TensorRT stores it."""

    name: str
    type: str  # of FIELD_TYPES
    data: bytes
    length: int  # elements


def field(name: str, type_name: str, value: float | str) -> Field:
    """A field with one number, or with text."""
    if isinstance(value, str):
        return Field(name, type_name, value.encode(), len(value.encode()))
    return Field(name, type_name, struct.pack(_NUMBERS[type_name], value), 1)


def fields_of(op: Op, attrs: Mapping[str, Attr]) -> list[Field]:
    """The fields that an op's plugin is made from."""
    return [
        field(name, ATTR_FIELD_TYPES[spec.type], attrs[name]) for name, spec in op.attrs.items()
    ]


def fields_arg(fields: Sequence[Field]) -> FieldsArg:
    """As `PluginFieldCollection`; `fields` must outlive it."""
    args = (FieldArg * max(len(fields), 1))()
    for arg, given in zip(args, fields, strict=False):
        data = ctypes.cast(ctypes.c_char_p(given.data), ctypes.c_void_p)
        arg.name, arg.data = given.name.encode(), data
        arg.type, arg.length = FIELD_TYPES[given.type], given.length
    return FieldsArg(len(fields), args)


def read_fields(arg: FieldsArg, *, values: bool = True) -> list[Field]:
    """From `PluginFieldCollection`, without `values` the names and types alone."""
    names = {code: name for name, code in FIELD_TYPES.items()}
    found = []
    for index in range(arg.count):
        each = arg.fields[index]
        name = names[each.type]
        size = each.length * struct.calcsize(_NUMBERS.get(name, "b"))
        data = ctypes.string_at(each.data, size) if values else b""
        found.append(Field(each.name.decode(), name, data, each.length))
    return found
