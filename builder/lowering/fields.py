"""A plugin's attributes as fields of TensorRT's bindings, as the text that describes it, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsv4_trt.errors import PluginError
from dsv4_trt.graph import Attr
from dsv4_trt.plugins.op_schema import AttrSpec, Op
from dsv4_trt.plugins.plugin_names import ATTR_FIELD_TYPES

_ARRAYS: dict[type, type[np.generic]] = {int: np.int32, bool: np.int32, float: np.float32}


@dataclass(frozen=True, slots=True)
class Fields:
    """TensorRT's fields, and the arrays that they point to: these have to live as long."""

    collection: Any
    arrays: list[Any]


def value_fields(trt: Any, op: Op, attrs: Mapping[str, Attr]) -> Fields:
    """Fields with the values of all attributes of an op; floats become fp32, as kernels take them."""
    return _fields(trt, op, [_array(spec, attrs[name]) for name, spec in op.attrs.items()])


def field_names(trt: Any, op: Op) -> Fields:
    """The fields that a plugin of this op is made from, without values."""
    return _fields(trt, op, [np.zeros(0, np.int8) for _ in op.attrs])


def _fields(trt: Any, op: Op, arrays: list[Any]) -> Fields:
    fields = [
        trt.PluginField(name, array, getattr(trt.PluginFieldType, ATTR_FIELD_TYPES[spec.type]))
        for (name, spec), array in zip(op.attrs.items(), arrays, strict=True)
    ]
    return Fields(trt.PluginFieldCollection(fields), arrays)


def attributes(op: Op, fields: Iterable[Any]) -> dict[str, Attr]:
    """Attributes from fields; those of other names are not ours. `PluginError` if one is missing."""
    given = {field.name: field.data for field in fields if field.name in op.attrs}
    missing = sorted(op.attrs.keys() - given.keys())
    if missing:
        raise PluginError(f"plugin '{op.name}' was given no fields {missing}")
    return {name: _value(spec, given[name]) for name, spec in op.attrs.items()}


def description(op: Op, attrs: Mapping[str, Attr]) -> str:
    """All attributes as text; the library's plugins write the same."""
    return ", ".join(f"{name}={_text(spec, attrs[name])}" for name, spec in op.attrs.items())


def described(op: Op, text: str) -> dict[str, Attr]:
    """The attributes of a description."""
    given = dict(part.split("=", 1) for part in text.split(", ")) if text else {}
    if given.keys() != op.attrs.keys():
        raise PluginError(
            f"plugin '{op.name}' says that it has {sorted(given)}; expected {[*op.attrs]}"
        )
    return {name: _parsed(spec, given[name]) for name, spec in op.attrs.items()}


def _text(spec: AttrSpec, value: Attr) -> str:
    if isinstance(value, str):
        return value
    return f"{np.float32(value):.9g}" if spec.type is float else str(int(value))


def _parsed(spec: AttrSpec, text: str) -> Attr:
    if spec.type is str:
        return text
    value: Attr = float(np.float32(text)) if spec.type is float else spec.type(int(text))
    return value


def _array(spec: AttrSpec, value: Attr) -> Any:
    if isinstance(value, str):
        return np.frombuffer(value.encode(), np.int8).copy()
    return np.array([value], _ARRAYS[spec.type])


def _value(spec: AttrSpec, data: Any) -> Attr:
    if spec.type is str:
        return bytes(np.asarray(data).view(np.uint8)).rstrip(b"\0").decode()
    value: Attr = spec.type(np.asarray(data).item())
    return value
