"""What a graph is to TensorRT: a plugin for each node, but where TensorRT has a layer as good.

Native are the embedding of a whole vocabulary (a gather) and the copies of it in every stream, which
TensorRT fuses into one kernel. Not native, though it could be: `add`, whose two casts and sum would put a
compiled kernel of 140 kB for each layer and profile into the plan, and the bf16 product of the head, whose
logits TensorRT would round to bf16.

A network may not hold INT8 and FP8 tensors at once, so every one-byte type is INT8 here: bytes that only
plugins read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from dsv4_trt.dtypes import DType
from dsv4_trt.graph import Attr, Dim, Graph, Node, Value, ValueKind
from dsv4_trt.plan_record import ELEMENT_TYPES, PlanTensor
from dsv4_trt.plugins.op_schema import Op
from dsv4_trt.plugins.ops import OPS


class Kind(StrEnum):
    """What a layer does."""

    PLUGIN = "plugin"
    GATHER = "gather"  # rows of the first input, picked by the second
    CAST = "cast"
    UNSQUEEZE = "unsqueeze"  # a further dimension of 1 behind the first
    CONCAT = "concat"  # along the second dimension
    SUM = "sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer; `aliases` says which output (by index) a plugin writes in place of which input."""

    name: str
    kind: Kind
    inputs: tuple[str, ...]
    outputs: tuple[PlanTensor, ...]
    op: str | None = None
    attrs: dict[str, Attr] = field(default_factory=dict)
    aliases: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """A network as TensorRT gets it; outputs are names of tensors."""

    name: str
    inputs: tuple[PlanTensor, ...]
    layers: tuple[Layer, ...]
    outputs: tuple[PlanTensor, ...]


def lower(graph: Graph) -> Lowered:
    """The layers of a graph, in its order; inputs are those that some layer reads."""
    shown = _Shown(graph)
    layers = tuple(layer for node in graph.nodes for layer in _layers(node, shown))
    read = dict.fromkeys(name for layer in layers for name in layer.inputs)
    values = [graph.values[name] for name in read if name in graph.values]
    return Lowered(
        name=graph.name,
        inputs=tuple(shown(v.name) for v in values if v.kind is not ValueKind.ACTIVATION),
        layers=layers,
        outputs=tuple(shown(name) for name in graph.outputs.values()),
    )


def present(op: Op, attrs: dict[str, Attr]) -> tuple[list[str], list[str]]:
    """Names of the inputs and outputs that a plugin with these attributes has, in its order."""
    sides = (op.inputs, op.outputs)
    inputs, outputs = ([p.name for p in params if p.exists(attrs)] for params in sides)
    return inputs, outputs


class _Shown:
    """A graph's values as TensorRT sees them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._order = {
            node.inputs[param.name]: param.order
            for node in graph.nodes
            for param in OPS[node.op].inputs
            if param.order is not None and param.name in node.inputs
        }
        reduced = [node for node in graph.nodes if node.op == "all_reduce"]
        self.partial = {name for node in reduced for name in node.inputs.values()}

    def __call__(self, name: str) -> PlanTensor:
        value = self.value(name)
        order = self._order.get(name, range(len(value.shape)))
        return _tensor(name, value.dtype, tuple(value.shape[i] for i in order))

    def value(self, name: str) -> Value:
        return self.graph.values[name]


def _layers(node: Node, shown: _Shown) -> Iterator[Layer]:
    native = _NATIVE.get(node.op)
    if native is None or shown.partial & set(node.outputs.values()):
        yield _plugin(node, shown)
    else:
        yield from native(node, shown)


def _plugin(node: Node, shown: _Shown) -> Layer:
    inputs, outputs = present(OPS[node.op], node.attrs)
    return Layer(
        name=node.name,
        kind=Kind.PLUGIN,
        op=node.op,
        attrs=node.attrs,
        inputs=tuple(node.inputs[param] for param in inputs),
        outputs=tuple(shown(node.outputs[param]) for param in outputs),
        aliases={outputs.index(to): inputs.index(source) for to, source in node.aliases.items()},
    )


def _embed(node: Node, shown: _Shown) -> Iterator[Layer]:
    """A rank's part of a vocabulary is no gather: ids of other ranks give zeros."""
    out = shown(node.outputs["out"])
    weight = shown(node.inputs["weight"])
    rows = out if out.dtype == weight.dtype else _like(out, f"{out.name}.rows", weight.dtype)
    yield _native(node, Kind.GATHER, rows, weight.name, node.inputs["token_ids"])
    if rows is not out:
        yield _native(node, Kind.CAST, out, rows.name)


def _expand_streams(node: Node, shown: _Shown) -> Iterator[Layer]:
    out = shown(node.outputs["streams"])
    tokens, count, hidden = out.shape
    one = _like(out, f"{out.name}.one", out.dtype, (tokens, 1, hidden))
    yield _native(node, Kind.UNSQUEEZE, one, node.inputs["x"])
    assert isinstance(count, int), "the number of streams is an attribute"
    yield _native(node, Kind.CONCAT, out, *[one.name] * count)


def _add_streams(node: Node, shown: _Shown) -> Iterator[Layer]:
    out = shown(node.outputs["streams"])
    tokens, _, hidden = out.shape
    one = _like(out, f"{out.name}.one", out.dtype, (tokens, 1, hidden))
    yield _native(node, Kind.UNSQUEEZE, one, node.inputs["x"])
    yield _native(node, Kind.SUM, out, node.inputs["streams"], one.name)


_NATIVE: dict[str, Callable[[Node, _Shown], Iterator[Layer]]] = {
    "embed": _embed,
    "expand_streams": _expand_streams,
    "add_streams": _add_streams,
}


def _native(node: Node, kind: Kind, output: PlanTensor, *inputs: str) -> Layer:
    return Layer(name=f"{node.name}.{kind}", kind=kind, inputs=inputs, outputs=(output,))


def _like(
    tensor: PlanTensor, name: str, dtype: str, shape: tuple[Dim, ...] | None = None
) -> PlanTensor:
    return PlanTensor(name=name, dtype=dtype, shape=tensor.shape if shape is None else shape)


def _tensor(name: str, dtype: DType, shape: tuple[Dim, ...]) -> PlanTensor:
    return PlanTensor(name=name, dtype=ELEMENT_TYPES[dtype], shape=shape)
