"""A network as ONNX, which is the only way of giving plugins to TensorRT-RTX: its network has no call for
them, its parser makes one of every node whose type and namespace name a creator.

The whole graph is written, with its real types and shapes, so that the plugins check them as they would
anywhere.
"""

from __future__ import annotations

from typing import Any

from dsv4_trt.builder.lowering.layers import Kind, Layer, Lowered
from dsv4_trt.builder.lowering.log import BuildLog
from dsv4_trt.errors import BuildError, MissingDependency
from dsv4_trt.plan_record import PlanTensor
from dsv4_trt.plugins.plugin_names import PLUGIN_NAMESPACE, PLUGIN_VERSION

_OPSET = 21
_IR_VERSION = 10
_AXIS = "one"  # an initialiser: the dimension that Unsqueeze adds
_TYPES = {"FLOAT": "FLOAT", "BF16": "BFLOAT16", "INT32": "INT32", "INT8": "INT8"}  # ONNX's names


def lower_rtx(trt: Any, network: Any, lowered: Lowered, log: BuildLog) -> None:
    """Fill an empty network through the ONNX parser of TensorRT-RTX.

    Raises `BuildError` with what the parser, or a plugin, has to say.
    """
    parser = trt.OnnxParser(network, log.logger)
    if not parser.parse(onnx_model(lowered)):
        found = [str(parser.get_error(index)) for index in range(parser.num_errors)]
        raise BuildError(
            f"TensorRT-RTX refuses graph '{lowered.name}': {log.last_error() or found}"
        )


def onnx_model(lowered: Lowered) -> bytes:
    """A network as a serialised ONNX model; plugins are nodes of the domain `dsv4`."""
    helper = import_onnx().helper
    axis = helper.make_tensor(_AXIS, import_onnx().TensorProto.INT64, [1], [1])
    graph = helper.make_graph(
        [_node(layer) for layer in lowered.layers],
        lowered.name,
        [_value(tensor) for tensor in lowered.inputs],
        [_value(tensor) for tensor in lowered.outputs],
        initializer=[axis] if any(x.kind is Kind.UNSQUEEZE for x in lowered.layers) else [],
    )
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(PLUGIN_NAMESPACE, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _node(layer: Layer) -> Any:
    helper = import_onnx().helper
    outputs = [tensor.name for tensor in layer.outputs]
    if layer.kind is Kind.PLUGIN:
        # ONNX has no booleans
        attrs = {k: int(v) if isinstance(v, bool) else v for k, v in layer.attrs.items()}
        return helper.make_node(
            layer.op,
            layer.inputs,
            outputs,
            name=layer.name,
            domain=PLUGIN_NAMESPACE,
            plugin_namespace=PLUGIN_NAMESPACE,
            plugin_version=PLUGIN_VERSION,
            **attrs,
        )
    inputs = layer.inputs
    more: dict[str, Any] = {}
    if layer.kind is Kind.GATHER:
        more = {"axis": 0}
    elif layer.kind is Kind.CONCAT:
        more = {"axis": 1}
    elif layer.kind is Kind.CAST:
        more = {"to": _type(layer.outputs[0])}
    elif layer.kind is Kind.UNSQUEEZE:
        inputs = (*inputs, _AXIS)
    return helper.make_node(_NATIVE[layer.kind], inputs, outputs, name=layer.name, **more)


_NATIVE = {
    Kind.GATHER: "Gather",
    Kind.CAST: "Cast",
    Kind.UNSQUEEZE: "Unsqueeze",
    Kind.CONCAT: "Concat",
    Kind.SUM: "Add",
}


def _value(tensor: PlanTensor) -> Any:
    return import_onnx().helper.make_tensor_value_info(tensor.name, _type(tensor), tensor.shape)


def _type(tensor: PlanTensor) -> int:
    return int(getattr(import_onnx().TensorProto, _TYPES[tensor.dtype]))


def import_onnx() -> Any:
    """The package onnx, which only builds for TensorRT-RTX need."""
    try:
        import onnx
    except ImportError as error:
        raise MissingDependency("onnx", "tensorrt-rtx", "building TensorRT-RTX plans") from error
    return onnx
