"""Workspaces that the plugins of a graph plan for: a plan has them inside, and never tells a launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from dsv4_trt.graph import Graph, Node, Value
from dsv4_trt.plugins.library import Call, Library, TensorArg, set_tensor
from dsv4_trt.plugins.op_schema import Param
from dsv4_trt.plugins.ops import OPS


def planned_workspaces(
    library: Library, graph: Graph, largest: Mapping[str, int], capability: int = 0
) -> dict[str, int]:
    """Bytes by node, where they are not none, for run-time sizes up to `largest`.

    They suffice on every device of a compute capability; 0 is what the library was told to plan for, or
    else the current device's.
    """
    found = {
        node.name: library.workspace_bound(_call(library, graph, node, largest), capability)
        for node in graph.nodes
    }
    return {name: nbytes for name, nbytes in found.items() if nbytes}


def _call(library: Library, graph: Graph, node: Node, sizes: Mapping[str, int]) -> Call:
    call = library.call(OPS[node.op], node.attrs)
    for arg, param, name in _tensors(call, node):
        _set(arg, param, graph.values[name], sizes)
    return call


def _tensors(call: Call, node: Node) -> Iterator[tuple[TensorArg, Param, str]]:
    sides = (
        (call.inputs, call.op.inputs, node.inputs),
        (call.outputs, call.op.outputs, node.outputs),
    )
    for args, params, names in sides:
        yield from ((args[p.name], p, names[p.name]) for p in params if p.name in names)


def _set(arg: TensorArg, param: Param, value: Value, sizes: Mapping[str, int]) -> None:
    """A tensor of the largest shape, dense in the order of memory."""
    shape = tuple(dim if isinstance(dim, int) else sizes[dim] for dim in value.shape)
    order = param.order or tuple(range(len(shape)))
    strides = [0] * len(shape)
    for at, index in enumerate(order):
        strides[index] = prod(shape[inner] for inner in order[at + 1 :])
    set_tensor(arg, 0, value.dtype, shape, tuple(strides))
