"""As much of a TensorRT 11 network as `lower_tensorrt` uses, holding what it is given.

It has the real names of methods and arguments, and is as strict as TensorRT about what it is given.
"""

from types import SimpleNamespace

from dsv4_trt.builder.lowering.fields import attributes
from dsv4_trt.builder.lowering.lower_tensorrt import lower_tensorrt
from dsv4_trt.builder.lowering.twin_rules import is_allowed, output_types
from dsv4_trt.plan_record import PlanLayer
from dsv4_trt.plugins.ops import OPS


class Tensor:
    def __init__(self, dtype, dims, source=None):
        self.dtype, self.dims, self.source = dtype, dims, source
        self.name = ""
        self.dimension_names = {}

    def set_dimension_name(self, index, name):
        assert self.dims[index] == -1
        self.dimension_names[index] = name


class Layer:
    def __init__(self, network, kind, inputs, dtypes, plugin=None):
        assert all(isinstance(tensor, Tensor) for tensor in inputs)
        self.kind, self.inputs, self.plugin = kind, inputs, plugin
        self.outputs = [Tensor(dtype, None, self) for dtype in dtypes]
        self.name = ""
        network.layers.append(self)

    def get_output(self, index):
        return self.outputs[index]


class Plugin:
    def __init__(self, op, fields, phase):
        assert phase == "BUILD"
        self.op, self.attrs = op, attributes(op, fields)
        op.check_attrs(self.attrs)

    def output_types(self, types):
        for count in range(1, len(types) + 1):
            assert is_allowed(self.op, self.attrs, types[:count], len(types))
        return output_types(self.op, self.attrs, types)


class Network:
    def __init__(self):
        self.inputs, self.layers, self.outputs = [], [], []

    def add_input(self, name, dtype, shape):
        assert name not in {tensor.name for tensor in self.inputs}
        tensor = Tensor(dtype, shape)
        tensor.name = name
        self.inputs.append(tensor)
        return tensor

    def add_plugin_v3(self, inputs, shape_inputs, plugin):
        assert shape_inputs == []
        types = plugin.output_types([tensor.dtype for tensor in inputs])
        return Layer(self, "PLUGIN_V3", inputs, types, plugin)

    def add_gather(self, input, indices, axis):
        assert (indices.dtype, axis) == ("INT32", 0)
        return Layer(self, "GATHER", [input, indices], [input.dtype])

    def add_cast(self, input, to_type):
        return Layer(self, "CAST", [input], [to_type])

    def add_shuffle(self, input):
        return Layer(self, "SHUFFLE", [input], [input.dtype])

    def add_concatenation(self, inputs):
        assert len({tensor.dtype for tensor in inputs}) == 1
        return Layer(self, "CONCATENATION", inputs, [inputs[0].dtype])

    def add_elementwise(self, input1, input2, op):
        assert (input1.dtype, op) == (input2.dtype, "SUM"), "strongly typed"
        return Layer(self, "ELEMENTWISE", [input1, input2], [input1.dtype])

    def mark_output(self, tensor):
        assert tensor.source in self.layers
        self.outputs.append(tensor)


class Registry:
    def get_creator(self, name, version, namespace):
        assert (version, namespace) == ("1", "dsv4")
        op = OPS.get(name)
        return op and SimpleNamespace(
            create_plugin=lambda name, fields, phase: Plugin(op, fields, phase)
        )


class Names:
    """An enumeration whose members are their names."""

    def __init__(self, *names):
        self.__dict__.update({name: name for name in names})


def fake_tensorrt():
    """The module's names that a lowering asks for."""
    return SimpleNamespace(
        DataType=Names("FLOAT", "BF16", "INT32", "INT8"),
        ElementWiseOperation=Names("SUM"),
        PluginFieldType=Names("INT32", "FLOAT32", "CHAR"),
        TensorRTPhase=Names("BUILD"),
        PluginField=lambda name, data, type: SimpleNamespace(name=name, data=data, type=type),
        PluginFieldCollection=list,
        get_plugin_registry=Registry,
    )


def lowered_network(lowered):
    """The network that `lower_tensorrt` makes."""
    network = Network()
    lower_tensorrt(fake_tensorrt(), network, lowered, SimpleNamespace(last_error=lambda: ""))
    return network


def recorded(lowered):
    """Its layers, as a build records them."""
    found = []
    for layer in lowered_network(lowered).layers:
        plugin = layer.plugin
        found.append(
            PlanLayer(
                name=layer.name,
                kind=layer.kind,
                op=None if plugin is None else plugin.op.name,
                attrs={} if plugin is None else plugin.attrs,
                inputs=tuple(tensor.name for tensor in layer.inputs),
                outputs=tuple(tensor.name for tensor in layer.outputs),
                aliases={},
            )
        )
    return found
