"""Types and shapes that a twin tells TensorRT, from the op's table entry: `Op.infer` on symbols.

Types are TensorRT's names. Dimensions are TensorRT's expressions; a parameter with an `order` comes with
its dimensions in that order.
"""

from __future__ import annotations

from typing import Any

from dsv4_trt.dtypes import DType
from dsv4_trt.errors import PluginError
from dsv4_trt.graph import Attr
from dsv4_trt.plan_record import ELEMENT_TYPES
from dsv4_trt.plugins.op_schema import Op, Param, terms


def is_allowed(op: Op, attrs: dict[str, Attr], types: list[str], num_inputs: int) -> bool:
    """Whether the last of some inputs and outputs has a type that goes with the ones before it."""
    if len(types) <= num_inputs:
        expected = _input_types(op, attrs, types)
    else:
        expected = [*types[:num_inputs], *output_types(op, attrs, types[:num_inputs])]
    return types[-1] == expected[len(types) - 1]


def _input_types(op: Op, attrs: dict[str, Attr], types: list[str]) -> list[str]:
    """What TensorRT's types of a plugin's first inputs have to be, a type variable's first use given."""
    known: dict[str, DType] = {}
    params = zip(op.inputs_of(attrs), types, strict=False)
    return [_name(op, param, attrs, known, found) for param, found in params]


def output_types(op: Op, attrs: dict[str, Attr], types: list[str]) -> list[str]:
    """TensorRT's types of a plugin's outputs; `PluginError` for inputs of a wrong type."""
    known: dict[str, DType] = {}
    for param, found in zip(op.inputs_of(attrs), types, strict=True):
        expected = _name(op, param, attrs, known, found)
        if found != expected:
            raise PluginError(
                f"input '{param.name}' of plugin '{op.name}' is {found}; expected {expected}"
            )
    return [ELEMENT_TYPES[op.resolve_dtype(p, known, attrs)] for p in op.outputs_of(attrs)]


def _name(op: Op, param: Param, attrs: dict[str, Attr], known: dict[str, DType], found: str) -> str:
    """The type that an input has to have; a type variable takes what is found first."""
    if isinstance(param.dtype, str) and param.dtype.startswith("$") and param.dtype not in known:
        known[param.dtype] = _VARIABLE.get(found, DType.F32)
    return ELEMENT_TYPES[op.resolve_dtype(param, known, attrs)]


# bytes under a type variable are e4m3: no op takes I8 by one
_VARIABLE = {name: dtype for dtype, name in ELEMENT_TYPES.items() if dtype is not DType.I8}


class Expressions:
    """Arithmetic on dimensions, some of which are known at run time only."""

    def __init__(self, trt: Any, builder: Any) -> None:
        self._trt, self._builder = trt, builder

    def constant(self, value: int) -> Any:
        return self._builder.constant(value)

    def known(self, dim: Any) -> int | None:
        """The value of a dimension that is known when the plan is built."""
        return int(dim.get_constant_value()) if dim.is_constant() else None

    def combine(self, operator: str, left: Any, right: Any) -> Any:
        operation = self._trt.DimensionOperation
        chosen = operation.PROD if operator == "*" else operation.FLOOR_DIV
        return self._builder.operation(chosen, left, right)


def output_shapes(
    op: Op, attrs: dict[str, Attr], shapes: list[list[Any]], expressions: Expressions
) -> list[list[Any]]:
    """Expressions of the dimensions of a plugin's outputs; `PluginError` for inputs of a wrong rank."""
    dims: dict[str, Any] = {
        name: expressions.constant(value) for name, value in attrs.items() if type(value) is int
    }
    for param, shape in zip(op.inputs_of(attrs), shapes, strict=True):
        pattern = [*param.shown(param.shape)]
        if pattern and pattern[0] == "...":
            lead = len(shape) - len(pattern) + 1
            dims["..."], shape, pattern = shape[:lead], shape[lead:], pattern[1:]
        if len(pattern) != len(shape):
            raise PluginError(
                f"input '{param.name}' of plugin '{op.name}' has {len(shape)} dimensions; expected "
                f"{len(pattern)}, {pattern}"
            )
        for term, dim in zip(pattern, shape, strict=True):
            _bind(op, param, term, dim, dims, expressions)
    return [
        [dim for term in param.shape for dim in _dims(term, dims, expressions)]
        for param in op.outputs_of(attrs)
    ]


def _bind(
    op: Op, param: Param, term: int | str, dim: Any, dims: dict[str, Any], expressions: Expressions
) -> None:
    """Name a dimension at its first use, and hold every other one against what it has to be."""
    if isinstance(term, str) and term.isidentifier() and term not in dims:
        dims[term] = dim
        return
    (expected,) = _dims(term, dims, expressions)
    values = expressions.known(dim), expressions.known(expected)
    if None not in values and values[0] != values[1]:
        raise PluginError(
            f"dimension '{term}' of input '{param.name}' of plugin '{op.name}' is {values[0]}; "
            f"expected {values[1]}"
        )


def _dims(term: int | str, dims: dict[str, Any], expressions: Expressions) -> list[Any]:
    if term == "...":
        found: list[Any] = dims["..."]
        return found
    if isinstance(term, int):
        return [expressions.constant(term)]
    first, *rest = terms(term)
    value = _atom(first, dims, expressions)
    for operator, operand in zip(rest[::2], rest[1::2], strict=True):
        value = expressions.combine(operator, value, _atom(operand, dims, expressions))
    return [value]


def _atom(token: str, dims: dict[str, Any], expressions: Expressions) -> Any:
    return expressions.constant(int(token)) if token.isdigit() else dims[token]
