"""A network as layers of a TensorRT 11 network, plugins through `add_plugin_v3`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsv4_trt.builder.lowering.fields import value_fields
from dsv4_trt.builder.lowering.layers import Kind, Layer, Lowered
from dsv4_trt.builder.lowering.log import BuildLog
from dsv4_trt.errors import BuildError
from dsv4_trt.plan_record import PlanTensor
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.plugin_names import PLUGIN_NAMESPACE, PLUGIN_VERSION

Tensors = dict[str, Any]


def lower_tensorrt(trt: Any, network: Any, lowered: Lowered, log: BuildLog) -> None:
    """Fill an empty network, strongly typed, from creators in the registry.

    Raises `BuildError` with what TensorRT, or a plugin, has to say.
    """
    tensors: Tensors = {}
    for tensor in lowered.inputs:
        tensors[tensor.name] = _input(trt, network, tensor)
    for layer in lowered.layers:
        added = _ADD[layer.kind](trt, network, layer, [tensors[name] for name in layer.inputs])
        if added is None:
            raise BuildError(
                f"TensorRT refuses layer '{layer.name}' of graph '{lowered.name}': "
                f"{log.last_error()}"
            )
        added.name = layer.name
        for index, tensor in enumerate(layer.outputs):
            tensors[tensor.name] = added.get_output(index)
            tensors[tensor.name].name = tensor.name
    for tensor in lowered.outputs:
        network.mark_output(tensors[tensor.name])


def data_type(trt: Any, tensor: PlanTensor) -> Any:
    """TensorRT's element type of a tensor."""
    return getattr(trt.DataType, tensor.dtype)


def _input(trt: Any, network: Any, tensor: PlanTensor) -> Any:
    shape = [dim if isinstance(dim, int) else -1 for dim in tensor.shape]
    added = network.add_input(tensor.name, data_type(trt, tensor), shape)
    for index, dim in enumerate(tensor.shape):
        if isinstance(dim, str):
            added.set_dimension_name(index, dim)
    return added


def _add_plugin(trt: Any, network: Any, layer: Layer, inputs: list[Any]) -> Any:
    assert layer.op is not None, "a plugin layer has an op"
    creator = trt.get_plugin_registry().get_creator(layer.op, PLUGIN_VERSION, PLUGIN_NAMESPACE)
    if creator is None:
        raise BuildError(
            f"TensorRT's registry has no plugin '{layer.op}' version {PLUGIN_VERSION} of namespace "
            f"'{PLUGIN_NAMESPACE}'; load the plugin library of this version of dsv4-trt"
        )
    fields = value_fields(trt, OPS[layer.op], layer.attrs)
    plugin = creator.create_plugin(layer.name, fields.collection, trt.TensorRTPhase.BUILD)
    return None if plugin is None else network.add_plugin_v3(inputs, [], plugin)


def _add_gather(trt: Any, network: Any, layer: Layer, inputs: list[Any]) -> Any:
    return network.add_gather(*inputs, 0)


def _add_cast(trt: Any, network: Any, layer: Layer, inputs: list[Any]) -> Any:
    return network.add_cast(*inputs, data_type(trt, layer.outputs[0]))


def _add_unsqueeze(trt: Any, network: Any, layer: Layer, inputs: list[Any]) -> Any:
    """The same as a reshape: 0 keeps a dimension, here the run-time one."""
    added = network.add_shuffle(*inputs)
    added.reshape_dims = [dim if isinstance(dim, int) else 0 for dim in layer.outputs[0].shape]
    return added


def _add_concat(trt: Any, network: Any, layer: Layer, inputs: list[Any]) -> Any:
    added = network.add_concatenation(inputs)
    added.axis = 1
    return added


def _add_sum(trt: Any, network: Any, layer: Layer, inputs: list[Any]) -> Any:
    return network.add_elementwise(*inputs, trt.ElementWiseOperation.SUM)


_ADD: dict[Kind, Callable[[Any, Any, Layer, list[Any]], Any]] = {
    Kind.PLUGIN: _add_plugin,
    Kind.GATHER: _add_gather,
    Kind.CAST: _add_cast,
    Kind.UNSQUEEZE: _add_unsqueeze,
    Kind.CONCAT: _add_concat,
    Kind.SUM: _add_sum,
}
