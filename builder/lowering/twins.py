"""The plugins in Python, class-based: same names, fields, types, shapes and aliases as the library's.

TensorRT can check and plan a network with them on a machine that has no plugin library. They know no
workspaces and can not run, nor can a plan that was built with them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from dsv4_trt.builder.lowering.fields import (
    attributes,
    description,
    field_names,
    value_fields,
)
from dsv4_trt.builder.lowering.twin_rules import (
    Expressions,
    is_allowed,
    output_shapes,
    output_types,
)
from dsv4_trt.errors import PluginError
from dsv4_trt.graph import Attr
from dsv4_trt.plugins.op_schema import Op
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.plugin_names import PLUGIN_NAMESPACE, PLUGIN_VERSION

Report = Callable[[str], None]


def register_twins(trt: Any, report: Report) -> list[Any]:
    """Register a creator for every op; the caller keeps them alive.

    What a twin refuses goes to `report`: TensorRT says of it only that something was refused.
    """
    creator = _creator_class(trt, _plugin_class(trt, report), report)
    creators = [creator(op) for op in OPS.values()]
    for made in creators:
        trt.get_plugin_registry().register_creator(made, PLUGIN_NAMESPACE)
    return creators


def _told(report: Report, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, but what it refuses is reported first."""

    @wraps(method)
    def call(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except PluginError as error:
            report(str(error))
            raise

    return call


def _creator_class(trt: Any, plugin: type, report: Report) -> type:
    class TwinCreator(trt.IPluginCreatorV3One):  # type: ignore[misc]
        def __init__(self, op: Op) -> None:
            trt.IPluginCreatorV3One.__init__(self)
            self.op = op
            self.name, self.plugin_namespace = op.name, PLUGIN_NAMESPACE
            self.plugin_version = PLUGIN_VERSION
            self._names = field_names(trt, op)
            self.field_names = self._names.collection

        def create_plugin(self, name: str, fields: Any, phase: Any) -> Any:
            return plugin(self.op, attributes(self.op, fields))

    TwinCreator.create_plugin = _told(report, TwinCreator.create_plugin)  # type: ignore[method-assign]
    return TwinCreator


def _plugin_class(trt: Any, report: Report) -> type:
    bases = (
        trt.IPluginV3,
        trt.IPluginV3OneCore,
        trt.IPluginV3OneBuildV2,
        trt.IPluginV3OneRuntime,
    )
    linear = trt.TensorFormat.LINEAR

    class Twin(*bases):  # type: ignore[misc]
        def __init__(self, op: Op, attrs: dict[str, Attr]) -> None:
            for base in bases:
                base.__init__(self)
            op.check_attrs(attrs)
            self.op, self.attrs = op, attrs
            self._fields = value_fields(trt, op, attrs)
            self.metadata_string = description(op, attrs)
            self.inputs = op.inputs_of(attrs)
            self.outputs = op.outputs_of(attrs)
            self.num_outputs = len(self.outputs)
            self.plugin_name, self.plugin_namespace = op.name, PLUGIN_NAMESPACE
            self.plugin_version = PLUGIN_VERSION

        def get_capability_interface(self, kind: Any) -> Any:
            return self

        def clone(self) -> Any:
            return Twin(self.op, self.attrs)

        def get_output_data_types(self, types: list[Any]) -> list[Any]:
            names = output_types(self.op, self.attrs, [t.name for t in types])
            return [getattr(trt.DataType, name) for name in names]

        def get_output_shapes(self, inputs: list[Any], shape_inputs: Any, builder: Any) -> Any:
            shapes = [[dims[i] for i in range(len(dims))] for dims in inputs]
            expressions = Expressions(trt, builder)
            found = output_shapes(self.op, self.attrs, shapes, expressions)
            results = [trt.DimsExprs(len(shape)) for shape in found]
            for result, shape in zip(results, found, strict=True):
                for index, dim in enumerate(shape):
                    result[index] = dim
            return results

        def supports_format_combination(self, pos: int, io: list[Any], num_inputs: int) -> bool:
            types = [d.desc.type.name for d in io[: pos + 1]]
            return io[pos].desc.format == linear and is_allowed(
                self.op, self.attrs, types, num_inputs
            )

        def get_aliased_input(self, output: int) -> int:
            source = self.op.aliases.get(self.outputs[output].name)
            return -1 if source is None else [p.name for p in self.inputs].index(source)

        def get_fields_to_serialize(self) -> Any:
            return self._fields.collection

        def configure_plugin(self, inputs: Any, outputs: Any) -> None:
            pass

        def get_workspace_size(self, inputs: Any, outputs: Any) -> int:
            return 0

        def get_valid_tactics(self) -> list[int]:
            return []

        def on_shape_change(self, inputs: Any, outputs: Any) -> None:
            pass

        def set_tactic(self, tactic: int) -> None:
            pass

        def attach_to_context(self, context: Any) -> Any:
            return self.clone()

        def enqueue(self, *arguments: Any) -> None:
            raise PluginError(f"'{self.op.name}' is a twin of the plugin, which can not run")

    for name in ("get_output_data_types", "get_output_shapes"):
        setattr(Twin, name, _told(report, getattr(Twin, name)))
    return Twin
