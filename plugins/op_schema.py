"""What an op's table entry says, and how shapes and dtypes follow from it.

Shapes are tuples of dimension expressions: an integer, a name that binds on first sight and must match
after that, or a product or exact quotient of bound names ("2*width", "K/128"). A leading "..." stands for
any leading dimensions. Attributes of type int are bound before the first input, so that expressions may
use them. Run-time sizes of a graph are strings; they bind to names too, but can not be calculated with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dsv4_trt.dtypes import DType
from dsv4_trt.errors import PluginError
from dsv4_trt.graph import Attr, Dim

Shape = tuple[Dim, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AttrSpec:
    """A static attribute: its type and, for strings, the legal choices."""

    type: type
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Param:
    """One input or output.

    dtype: an element type; "$name" binds a type variable; "@attr" reads the type from an attribute;
    a mapping picks it by the value of the attribute `by`. `when` (an attribute and values of it) says
    for which calls the parameter exists; in all others it must be left out. `order` names the dimensions
    from the slowest to the fastest in memory, where TensorRT, which knows only dense tensors, is shown
    that memory.
    """

    name: str
    dtype: DType | str | Mapping[str, DType]
    shape: tuple[Dim, ...]
    by: str | None = None
    when: tuple[str, tuple[Attr, ...]] | None = None
    order: tuple[int, ...] | None = None

    def exists(self, attrs: Mapping[str, Attr]) -> bool:
        """Whether a call with these attributes has this parameter."""
        return self.when is None or attrs[self.when[0]] in self.when[1]

    def shown(self, shape: Sequence[T]) -> tuple[T, ...]:
        """A shape of it as TensorRT is shown it."""
        return tuple(shape[index] for index in self.order or range(len(shape)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One op: what a fused kernel or a short fixed sequence of launches does."""

    name: str
    doc: str
    inputs: tuple[Param, ...]
    outputs: tuple[Param, ...]
    attrs: Mapping[str, AttrSpec] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)  # output -> the input it overwrites
    collective: bool = False  # runs over all ranks at once

    def inputs_of(self, attrs: Mapping[str, Attr]) -> list[Param]:
        """The inputs that a call with these attributes has."""
        return [param for param in self.inputs if param.exists(attrs)]

    def outputs_of(self, attrs: Mapping[str, Attr]) -> list[Param]:
        """The outputs that a call with these attributes has."""
        return [param for param in self.outputs if param.exists(attrs)]

    def infer(
        self, inputs: Mapping[str, tuple[DType, Shape]], attrs: Mapping[str, Attr]
    ) -> dict[str, tuple[DType, Shape]]:
        """Check a call and return dtype and shape of each output; `PluginError` says what is off."""
        self.check_attrs(attrs)
        present = self.inputs_of(attrs)
        known = {spec.name for spec in present}
        if set(inputs) != known:
            raise PluginError(
                f"op '{self.name}' with these attributes takes the inputs {sorted(known)}; "
                f"missing {sorted(known - set(inputs))}, not known {sorted(set(inputs) - known)}"
            )
        dims: dict[str, Any] = {k: v for k, v in attrs.items() if type(v) is int}
        types: dict[str, DType] = {}
        for spec in present:
            dtype, shape = inputs[spec.name]
            self._match_dtype(spec, dtype, types, attrs)
            self._match_shape(spec, shape, dims)
        return {
            spec.name: (
                self.resolve_dtype(spec, types, attrs),
                tuple(self._expand(spec, dims)),
            )
            for spec in self.outputs_of(attrs)
        }

    def check_attrs(self, attrs: Mapping[str, Attr]) -> None:
        """Raise `PluginError` unless these are the op's attributes, with legal values."""
        if set(attrs) != set(self.attrs):
            raise PluginError(
                f"op '{self.name}' got attributes {sorted(attrs)}; expected {sorted(self.attrs)}"
            )
        for name, spec in self.attrs.items():
            value = attrs[name]
            if type(value) is not spec.type:
                raise PluginError(
                    f"attribute '{name}' of op '{self.name}' is {value!r}; "
                    f"expected {spec.type.__name__}"
                )
            if spec.choices and value not in spec.choices:
                raise PluginError(
                    f"attribute '{name}' of op '{self.name}' is {value!r}; "
                    f"expected one of {', '.join(spec.choices)}"
                )

    def resolve_dtype(
        self, spec: Param, types: Mapping[str, DType], attrs: Mapping[str, Attr]
    ) -> DType:
        """The element type of a parameter; `types` has those of the type variables."""
        if isinstance(spec.dtype, DType):
            return spec.dtype
        if isinstance(spec.dtype, Mapping):
            assert spec.by is not None
            return spec.dtype[str(attrs[spec.by])]
        if spec.dtype.startswith("@"):
            return DType(str(attrs[spec.dtype[1:]]))
        return types[spec.dtype]

    def _match_dtype(
        self,
        spec: Param,
        found: DType,
        types: dict[str, DType],
        attrs: Mapping[str, Attr],
    ) -> None:
        if isinstance(spec.dtype, str) and spec.dtype.startswith("$"):
            expected = types.setdefault(spec.dtype, found)
        else:
            expected = self.resolve_dtype(spec, types, attrs)
        if found is not expected:
            raise PluginError(
                f"input '{spec.name}' of op '{self.name}' is {found}; expected {expected}"
            )

    def _match_shape(self, spec: Param, found: Shape, dims: dict[str, Any]) -> None:
        pattern = spec.shape
        actual = found
        if pattern and pattern[0] == "...":
            lead = max(len(found) - len(pattern) + 1, 0)
            dims.setdefault("...", found[:lead])
            pattern, actual = pattern[1:], found[lead:]
        if len(pattern) != len(actual):
            raise PluginError(
                f"input '{spec.name}' of op '{self.name}' has shape {list(found)}; "
                f"expected {len(spec.shape)} dimensions {list(spec.shape)}"
            )
        for want, got in zip(pattern, actual, strict=True):
            if isinstance(want, str) and want.isidentifier():
                expected = dims.setdefault(want, got)
            else:
                expected = self._value(spec, want, dims)
            if expected != got:
                raise PluginError(
                    f"input '{spec.name}' of op '{self.name}' has shape {list(found)}; dimension "
                    f"'{want}' is {got}, expected {expected}"
                )

    def _expand(self, spec: Param, dims: dict[str, Any]) -> list[Dim]:
        out: list[Dim] = []
        for want in spec.shape:
            if want == "...":
                out.extend(dims["..."])
            else:
                out.append(self._value(spec, want, dims))
        return out

    def _value(self, spec: Param, expression: Dim, dims: Mapping[str, Any]) -> Dim:
        if isinstance(expression, int):
            return expression
        first, *rest = terms(expression)
        value = _atom(first, dims)
        for operator, term in zip(rest[::2], rest[1::2], strict=True):
            operand = _atom(term, dims)
            fixed = isinstance(value, int) and isinstance(operand, int)
            if not fixed or (operator == "/" and (operand == 0 or value % operand)):
                raise PluginError(
                    f"dimension '{expression}' of '{spec.name}' of op '{self.name}' is "
                    f"{value} {operator} {operand}; expected whole numbers and no run-time size"
                )
            value = value * operand if operator == "*" else value // operand
        result: Dim = value
        return result

    def to_json(self) -> dict[str, Any]:
        """The entry as plain data; the kernel library exports the same and loading compares them."""
        return {
            "name": self.name,
            "inputs": [_tensor_json(t) for t in self.inputs],
            "outputs": [_tensor_json(t) for t in self.outputs],
            "attrs": {
                name: {"type": a.type.__name__, "choices": list(a.choices)}
                for name, a in self.attrs.items()
            },
            "aliases": dict(self.aliases),
            "collective": self.collective,
        }


def _tensor_json(spec: Param) -> dict[str, Any]:
    dtype = spec.dtype
    return {
        "name": spec.name,
        "dtype": {k: str(v) for k, v in dtype.items()}
        if isinstance(dtype, Mapping)
        else str(dtype),
        "by": spec.by,
        "shape": list(spec.shape),
        "when": None if spec.when is None else [spec.when[0], list(spec.when[1])],
        "order": None if spec.order is None else list(spec.order),
    }


def terms(expression: str) -> list[str]:
    """Names, numbers and operators of a dimension in turn: "2*width" is 2, *, width."""
    return _TERM.findall(expression)


_TERM = re.compile(r"[*/]|[A-Za-z_]\w*|\d+")


def _atom(token: str, dims: Mapping[str, Any]) -> Any:
    return int(token) if token.isdigit() else dims[token]
