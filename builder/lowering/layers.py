"""What a graph is to TensorRT: a plugin for each node, but where TensorRT has a layer as good.

Native are the embedding of a whole vocabulary (a gather) and the copies of it in every stream, which
TensorRT fuses into one kernel. Not native, though it could be: `add`, whose two casts and sum would put a
compiled kernel of 134 kB for each layer and profile into the plan, and the bf16 product of the head, whose
logits TensorRT would round to bf16.

A network may not hold INT8 and FP8 tensors at once, so every one-byte type is INT8 here: bytes that only
plugins read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from dsv4_trt.graph import Attr, Dim, Graph, Node, ValueKind
from dsv4_trt.plan_record import PlanTensor
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
    """A network as TensorRT gets it."""

    name: str
    inputs: tuple[PlanTensor, ...]
    layers: tuple[Layer, ...]
    outputs: tuple[PlanTensor, ...]


def lower(graph: Graph) -> Lowered:
    """The layers of a graph, in its order; inputs are those that some layer reads."""
    layers = tuple(layer for node in graph.nodes for layer in _layers(node, graph))
    read = dict.fromkeys(name for layer in layers for name in layer.inputs)
    values = [graph.values[name] for name in read if name in graph.values]
    return Lowered(
        name=graph.name,
        inputs=tuple(PlanTensor.of(v) for v in values if v.kind is not ValueKind.ACTIVATION),
        layers=layers,
        outputs=tuple(_tensor(graph, name) for name in graph.outputs.values()),
    )


def _layers(node: Node, graph: Graph) -> Iterator[Layer]:
    native = _NATIVE.get(node.op)
    if native is None or _is_partial(node, graph):
        yield _plugin(node, graph)
    else:
        yield from native(node, graph)


def _is_partial(node: Node, graph: Graph) -> bool:
    """Whether what a node makes is a rank's part of a sum."""
    made = set(node.outputs.values())
    return any(x.op == "all_reduce" and made & set(x.inputs.values()) for x in graph.nodes)


def _plugin(node: Node, graph: Graph) -> Layer:
    op = OPS[node.op]
    inputs = [param.name for param in op.inputs_of(node.attrs)]
    outputs = [param.name for param in op.outputs_of(node.attrs)]
    return Layer(
        name=node.name,
        kind=Kind.PLUGIN,
        op=node.op,
        attrs=node.attrs,
        inputs=tuple(node.inputs[param] for param in inputs),
        outputs=tuple(_tensor(graph, node.outputs[param]) for param in outputs),
        aliases={outputs.index(to): inputs.index(source) for to, source in node.aliases.items()},
    )


def _embed(node: Node, graph: Graph) -> Iterator[Layer]:
    """A rank's part of a vocabulary is no gather: ids of other ranks give zeros."""
    out = _tensor(graph, node.outputs["out"])
    weight = _tensor(graph, node.inputs["weight"])
    rows = out if out.dtype == weight.dtype else _like(out, f"{out.name}.rows", weight.dtype)
    yield _native(node, Kind.GATHER, rows, weight.name, node.inputs["token_ids"])
    if rows is not out:
        yield _native(node, Kind.CAST, out, rows.name)


def _expand_streams(node: Node, graph: Graph) -> Iterator[Layer]:
    out = _tensor(graph, node.outputs["streams"])
    tokens, count, hidden = out.shape
    one = _like(out, f"{out.name}.one", out.dtype, (tokens, 1, hidden))
    yield _native(node, Kind.UNSQUEEZE, one, node.inputs["x"])
    assert isinstance(count, int), "the number of streams is an attribute"
    yield _native(node, Kind.CONCAT, out, *[one.name] * count)


def _add_streams(node: Node, graph: Graph) -> Iterator[Layer]:
    out = _tensor(graph, node.outputs["streams"])
    tokens, _, hidden = out.shape
    one = _like(out, f"{out.name}.one", out.dtype, (tokens, 1, hidden))
    yield _native(node, Kind.UNSQUEEZE, one, node.inputs["x"])
    yield _native(node, Kind.SUM, out, node.inputs["streams"], one.name)


_NATIVE: dict[str, Callable[[Node, Graph], Iterator[Layer]]] = {
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


def _tensor(graph: Graph, name: str) -> PlanTensor:
    return PlanTensor.of(graph.values[name])
