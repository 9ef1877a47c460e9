"""What a plan turned out to be: the network as TensorRT holds it, its streams, its machine code."""

from __future__ import annotations

import re
import struct
from typing import Any

from dsv4_trt.builder.lowering.fields import described
from dsv4_trt.errors import BuildError
from dsv4_trt.graph import Attr
from dsv4_trt.plan_record import PlanLayer
from dsv4_trt.plugins.ops import OPS

_LAYER = re.compile(r"^Name: (?P<name>.*?), LayerType: .*?, StreamId: (?P<stream>\d+)", re.M)
_STREAMS = re.compile(r"Number of streams used is (\d+)")
_ELF = b"\x7fELF\x02\x01"
_ELF_HEADER = struct.Struct("<16xHHIQQQI")  # type, machine, version, entry, two offsets, flags
_CUDA_MACHINE = 190
_KERNEL = re.compile(
    rb'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+?)_0x[0-9a-f]+(?:_com)?\('
)


def read_layers(trt: Any, network: Any) -> tuple[PlanLayer, ...]:
    """Every layer of a network, with the attributes that its plugins say they have."""
    return tuple(_read(trt, network.get_layer(index)) for index in range(network.num_layers))


def _read(trt: Any, layer: Any) -> PlanLayer:
    inputs = [layer.get_input(i) for i in range(layer.num_inputs)]
    inputs = [tensor.name for tensor in inputs if tensor is not None]
    outputs = [layer.get_output(i).name for i in range(layer.num_outputs)]
    op: str | None = None
    attrs: dict[str, Attr] = {}
    aliases: dict[str, str] = {}
    name, kind = layer.name, layer.type
    if kind == trt.LayerType.PLUGIN_V3:
        layer.__class__ = trt.IPluginV3Layer  # the bindings give the base class
        op, attrs = _read_plugin(trt, layer.plugin)
        read = [param.name for param in OPS[op].inputs_of(attrs)]
        written = [param.name for param in OPS[op].outputs_of(attrs)]
        aliases = {
            outputs[written.index(to)]: inputs[read.index(source)]
            for to, source in OPS[op].aliases.items()
        }
    return PlanLayer(
        name=name,
        kind=kind.name,
        op=op,
        attrs=attrs,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        aliases=aliases,
    )


def _read_plugin(trt: Any, plugin: Any) -> tuple[str, dict[str, Attr]]:
    kinds = trt.PluginCapabilityType
    op = str(plugin.get_capability_interface(kinds.CORE).plugin_name)
    if op not in OPS:
        raise BuildError(f"the network has a plugin '{op}', which is no op of this version")
    # its fields can not be asked for: the bindings know those of plugins in Python alone
    text = str(plugin.get_capability_interface(kinds.BUILD).metadata_string)
    return op, described(OPS[op], text)


def streams_of(layers: str, messages: str) -> tuple[int, dict[str, int]]:
    """How many streams a plan uses, and by fused layer on which it runs, from what TensorRT logged."""
    used = [int(number) for number in _STREAMS.findall(messages)]
    return max(used, default=1), {m["name"]: int(m["stream"]) for m in _LAYER.finditer(layers)}


def device_code(plan: bytes) -> tuple[str, ...]:
    """Kernels in a plan besides the plugins': architectures of machine code, names of CUDA sources.

    TensorRT-RTX keeps fused kernels as source and compiles them on the user's GPU.
    """
    sources = sorted({name.decode() for name in _KERNEL.findall(plan)})
    return (*_machine_code(plan), *(f"source {name}" for name in sources))


def _machine_code(plan: bytes) -> list[str]:
    found, start = set(), plan.find(_ELF)
    while start >= 0:
        header = plan[start : start + _ELF_HEADER.size]
        if len(header) == _ELF_HEADER.size:
            _, machine, _, _, _, _, flags = _ELF_HEADER.unpack(header)
            if machine == _CUDA_MACHINE:
                found.add(f"sm_{flags >> 8 & 0xFF or flags & 0xFF}")
        start = plan.find(_ELF, start + 1)
    return sorted(found)
