"""Writes the op table as constexpr data of C++, for the one TensorRT plugin class that serves all ops.

python -m dsv4_trt.plugins.schema_header op_schema.h

The structures are those of csrc/trt/schema.h.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from dsv4_trt.dtypes import DType
from dsv4_trt.graph import Attr, Dim
from dsv4_trt.plugins.library import DTYPE_CODES
from dsv4_trt.plugins.op_schema import AttrSpec, Op, Param, terms
from dsv4_trt.plugins.ops import OPS

_TYPES = {int: "kInt", bool: "kBool", float: "kFloat", str: "kText"}


def schema_header() -> str:
    """The header's text; ops, tensors and attributes stand in the order of the table."""
    entries = ",\n".join(f"    {_op(op)}" for op in OPS.values())
    return "\n".join(
        [
            "// Written from the op table by dsv4_trt.plugins.schema_header.",
            "#pragma once",
            '#include "trt/schema.h"',
            "namespace dsv4::schema {",
            f"inline constexpr Op ops[] = {{\n{entries}}};",
            "}  // namespace dsv4::schema",
            "",
        ]
    )


def _op(op: Op) -> str:
    places = {name: place for place, name in enumerate(op.attrs)}
    names = _dimension_names(op)
    inputs, outputs = (
        _list(_param(p, op, places, names) for p in side) for side in (op.inputs, op.outputs)
    )
    rows = [f"{{{_text(name)}, {places.get(name, -1)}}}" for name in names]
    order = [[p.name for p in side] for side in (op.inputs, op.outputs)]
    aliases = [
        f"{{{order[1].index(output)}, {order[0].index(source)}}}"
        for output, source in op.aliases.items()
    ]
    attributes = _list(_attribute(name, spec) for name, spec in op.attrs.items())
    return (
        f"{{{_text(op.name)}, {inputs}, {outputs}, {attributes}, {_list(rows)}, {_list(aliases)}, "
        f"{_flag(op.collective)}}}"
    )


def _attribute(name: str, spec: AttrSpec) -> str:
    return f"{{{_text(name)}, AttrType::{_TYPES[spec.type]}, {_list(map(_text, spec.choices))}}}"


def _param(spec: Param, op: Op, places: Mapping[str, int], names: list[str]) -> str:
    leading = spec.shape[:1] == ("...",)
    dims = _list(_dim(dim, names) for dim in spec.shape[leading:])
    condition = "{-1, {}}"
    if spec.when is not None:
        attribute, values = spec.when
        condition = f"{{{places[attribute]}, {_list(map(_value, values))}}}"
    rule = _dtype(spec, op, places)
    return (
        f"{{{_text(spec.name)}, {rule}, {_flag(leading)}, {dims}, {condition}, "
        f"{_list(map(str, spec.order or ()))}}}"
    )


def _dtype(spec: Param, op: Op, places: Mapping[str, int]) -> str:
    dtype = spec.dtype
    if isinstance(dtype, DType):
        return f"{{DTypeRule::kFixed, {DTYPE_CODES[dtype]}, {{}}}}"
    if isinstance(dtype, Mapping):
        assert spec.by is not None, "a mapping has an attribute"
        return _chosen(places[spec.by], dtype)
    if dtype.startswith("@"):
        attribute = dtype[1:]
        choices = op.attrs[attribute].choices
        return _chosen(places[attribute], {choice: DType(choice) for choice in choices})
    return f"{{DTypeRule::kVariable, {_variables(op).index(dtype)}, {{}}}}"


def _chosen(attribute: int, types: Mapping[str, DType]) -> str:
    pairs = [f"{{{_text(value)}, {DTYPE_CODES[dtype]}}}" for value, dtype in types.items()]
    return f"{{DTypeRule::kChosen, {attribute}, {_list(pairs)}}}"


def _dim(dim: Dim, names: list[str]) -> str:
    factors = [
        f"{{'{operator}', -1, {atom}}}"
        if atom.isdigit()
        else f"{{'{operator}', {names.index(atom)}, 0}}"
        for operator, atom in _factors(dim)
    ]
    return f"{{{_text(str(dim))}, {_list(factors)}}}"


def _factors(dim: Dim) -> Iterator[tuple[str, str]]:
    """The first one multiplies, too."""
    found = ["*", *terms(str(dim))]
    return zip(found[::2], found[1::2], strict=True)


def _dimension_names(op: Op) -> list[str]:
    """Every name that a shape of the op has."""
    shapes = [dim for spec in (*op.inputs, *op.outputs) for dim in spec.shape if dim != "..."]
    atoms = [atom for dim in shapes for _, atom in _factors(dim)]
    return list(dict.fromkeys(atom for atom in atoms if not atom.isdigit()))


def _variables(op: Op) -> list[str]:
    found = [p.dtype for p in op.inputs if isinstance(p.dtype, str) and p.dtype.startswith("$")]
    return list(dict.fromkeys(found))


def _value(value: Attr) -> str:
    return f"{{0, {_text(value)}}}" if isinstance(value, str) else f"{{{int(value)}, nullptr}}"


def _list(items: Iterable[str]) -> str:
    found = list(items)
    return f"{{{len(found)}, {{{', '.join(found)}}}}}"


def _text(text: str) -> str:
    return f'"{text}"'


def _flag(value: bool) -> str:
    return "true" if value else "false"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(schema_header())
