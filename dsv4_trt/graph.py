"""A small typed graph: pure data that becomes JSON, a TensorRT network or a walk over op functions.

A value is a tensor with a name, an element type and a shape whose dimensions are integers or names
of run-time sizes ("num_tokens"). Values are step inputs, weights (network inputs bound once), KV
pools (one per layer and cache class, updated in place through aliased outputs) or activations.
Nodes are listed in execution order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dsv4_trt.dtypes import DType
from dsv4_trt.errors import BuildError

Dim = int | str
Attr = int | float | str | bool


class ValueKind(StrEnum):
    """Where a value comes from."""

    INPUT = "input"  # of every step
    WEIGHT = "weight"  # by name from the rank file
    KV = "kv"  # a pool's slab; later versions of it are aliases
    ACTIVATION = "activation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One tensor of the graph."""

    name: str
    kind: ValueKind
    dtype: DType
    shape: tuple[Dim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One op call; `inputs` and `outputs` map the op's parameter names to value names.

    Inputs stand in the order of the op's table entry. `aliases` names the input that an output
    overwrites in place.
    """

    name: str
    op: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    attrs: dict[str, Attr]
    aliases: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Graph:
    """A network: values by name, nodes in execution order, outputs by what they are."""

    name: str
    values: dict[str, Value] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)

    def of_kind(self, kind: ValueKind) -> list[Value]:
        """Values of one kind, in the order they were added."""
        return [value for value in self.values.values() if value.kind is kind]

    def check(self) -> None:
        """Every value is defined before it is used, once, and every output exists.

        Also holds the aliasing rule of TensorRT: one consumer per version of a KV pool.
        """
        defined = {v.name for v in self.values.values() if v.kind is not ValueKind.ACTIVATION}
        pools = {v.name for v in self.of_kind(ValueKind.KV)}
        consumers: dict[str, str] = {}
        for node in self.nodes:
            for param, name in node.inputs.items():
                if name not in defined:
                    raise BuildError(
                        f"node '{node.name}' reads '{name}' as '{param}' before it is written"
                    )
                if name in pools:
                    if name in consumers:
                        raise BuildError(
                            f"pool version '{name}' is read by '{consumers[name]}' and "
                            f"'{node.name}'; a pool version has one consumer"
                        )
                    consumers[name] = node.name
            for param, name in node.outputs.items():
                if name not in self.values:
                    raise BuildError(f"node '{node.name}' writes unknown value '{name}'")
                if name in defined:
                    raise BuildError(f"value '{name}' is written twice, by '{node.name}'")
                defined.add(name)
                if param in node.aliases and node.inputs[node.aliases[param]] in pools:
                    pools.add(name)
        missing = [name for name in self.outputs.values() if name not in defined]
        if missing:
            raise BuildError(f"graph '{self.name}' never writes its outputs {missing}")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; `from_json` gives an equal graph back."""
        return {
            "name": self.name,
            "values": [
                {"name": v.name, "kind": str(v.kind), "dtype": str(v.dtype), "shape": list(v.shape)}
                for v in self.values.values()
            ],
            "nodes": [
                {
                    "name": n.name,
                    "op": n.op,
                    "inputs": n.inputs,
                    "outputs": n.outputs,
                    "attrs": n.attrs,
                    "aliases": n.aliases,
                }
                for n in self.nodes
            ],
            "outputs": self.outputs,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Graph:
        """Read what `to_json` wrote."""
        values = {
            v["name"]: Value(
                name=v["name"],
                kind=ValueKind(v["kind"]),
                dtype=DType(v["dtype"]),
                shape=tuple(v["shape"]),
            )
            for v in data["values"]
        }
        nodes = [Node(**node) for node in data["nodes"]]
        return Graph(name=data["name"], values=values, nodes=nodes, outputs=dict(data["outputs"]))
