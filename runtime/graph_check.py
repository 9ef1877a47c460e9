"""Holds a graph from a bundle against this version's op table."""

from __future__ import annotations

from dsv4_trt.errors import BundleMismatch, PluginError
from dsv4_trt.graph import Graph, Node
from dsv4_trt.plugins.ops import OPS


def check_graph(graph: Graph) -> None:
    """Raise `BundleMismatch` unless the op table allows every node."""
    for node in graph.nodes:
        _check_node(graph, node)


def _check_node(graph: Graph, node: Node) -> None:
    inputs = {param: graph.values[value] for param, value in node.inputs.items()}
    try:
        if node.op not in OPS:
            raise PluginError(f"there is no op '{node.op}'")
        OPS[node.op].infer({p: (v.dtype, v.shape) for p, v in inputs.items()}, node.attrs)
    except PluginError as error:
        raise BundleMismatch(
            f"node '{node.name}' of graph '{graph.name}' was built for another version of dsv4-trt: "
            f"{error}; build the bundle again"
        ) from error
