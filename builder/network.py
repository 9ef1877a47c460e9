"""Builds a graph op by op: looks ops up in the table, infers shapes, names values, and threads pools.

Step inputs, weights and pools become graph values the first time an op asks for them, so a graph holds
exactly what it uses.
"""

from __future__ import annotations

from collections.abc import Mapping

from dsv4_trt.contract import pool_size, step_inputs, streams_input
from dsv4_trt.dtypes import DType
from dsv4_trt.errors import BuildError, PluginError
from dsv4_trt.graph import Attr, Graph, Node, Value, ValueKind
from dsv4_trt.kv_layout import CacheClass, KvLayout
from dsv4_trt.mapping import Mapping as RankMapping
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.precision import Precision
from dsv4_trt.rank_tensors import TensorSpec, rank_tensors


class Network:
    """A graph under construction for one model, mapping, precision and KV layout."""

    def __init__(
        self,
        name: str,
        spec: ModelSpec,
        mapping: RankMapping,
        precision: Precision,
        layout: KvLayout,
    ) -> None:
        self.spec = spec
        self.mapping = mapping
        self.precision = precision
        self.layout = layout
        self.graph = Graph(name=name)
        mtp = CacheClass.MTP_SWA in layout.classes
        self._weights = {t.name: t for t in rank_tensors(spec, mapping, mtp=mtp)}
        inputs = (*step_inputs(layout), streams_input(spec, precision.dtype))
        self._inputs = {value.name: value for value in inputs}
        self._pool_versions: dict[str, int] = {}

    def input(self, name: str) -> str:
        """The step input `name`."""
        value = self._inputs[name]
        return self._define(name, ValueKind.INPUT, value.dtype, value.shape)

    def weight(self, name: str) -> str:
        """The rank-file tensor `name`."""
        tensor = self.weight_spec(name)
        return self._define(name, ValueKind.WEIGHT, tensor.dtype, tensor.shape)

    def weight_spec(self, name: str) -> TensorSpec:
        """Dtype and shape of a rank-file tensor."""
        if name not in self._weights:
            raise BuildError(f"the rank file of this model has no tensor '{name}'")
        return self._weights[name]

    def pool(self, cache_class: CacheClass, layer: int) -> str:
        """The newest version of the pool that a layer's pages of one class live in."""
        base = f"kv.{cache_class}.{layer}"
        kv = self.layout[cache_class]
        self._define(base, ValueKind.KV, DType.I8, (pool_size(kv.bucket), kv.page_bytes))
        version = self._pool_versions.setdefault(base, 0)
        return base if version == 0 else f"{base}.{version}"

    def op(self, op: str, name: str, inputs: Mapping[str, str], **attrs: Attr) -> dict[str, str]:
        """Append one op call; returns the value name of each output."""
        entry = OPS[op]
        types = {
            p: (self.graph.values[v].dtype, self.graph.values[v].shape) for p, v in inputs.items()
        }
        try:
            inferred = entry.infer(types, attrs)
        except PluginError as error:
            raise BuildError(f"node '{name}': {error}") from error
        outputs = {}
        for param, (dtype, shape) in inferred.items():
            if param in entry.aliases:
                value = self._next_version(inputs[entry.aliases[param]])
            else:
                value = name if len(inferred) == 1 else f"{name}.{param}"
            outputs[param] = self._define(value, ValueKind.ACTIVATION, dtype, shape)
        node = Node(
            name=name,
            op=op,
            inputs={p.name: inputs[p.name] for p in entry.inputs if p.name in inputs},
            outputs=outputs,
            attrs=dict(attrs),
            aliases=dict(entry.aliases),
        )
        self.graph.nodes.append(node)
        return outputs

    def output(self, role: str, value: str) -> None:
        """Mark a value as the graph's output of that role."""
        self.graph.outputs[role] = value

    def _next_version(self, pool: str) -> str:
        base = ".".join(pool.split(".")[:3])
        self._pool_versions[base] += 1
        return f"{base}.{self._pool_versions[base]}"

    def _define(
        self, name: str, kind: ValueKind, dtype: DType, shape: tuple[int | str, ...]
    ) -> str:
        known = self.graph.values.get(name)
        if known is None:
            self.graph.values[name] = Value(name=name, kind=kind, dtype=dtype, shape=shape)
        elif known.kind is not kind or kind is ValueKind.ACTIVATION:
            raise BuildError(f"value '{name}' is defined twice")
        return name
