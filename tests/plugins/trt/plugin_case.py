"""An op call as TensorRT sees its plugin."""

from dsv4_trt.dtypes import DType
from dsv4_trt.plan_record import ELEMENT_TYPES
from dsv4_trt.plugins.harness_plugin import Range, Tensor
from dsv4_trt.plugins.plugin_fields import fields_of


class PluginCase:
    """What a plugin is made from, gets and gives, in its own order."""

    def __init__(self, call):
        self.call, self.op = call, call.op
        self.fields = fields_of(call.op, call.attrs)
        self.input_params = call.op.inputs_of(call.attrs)
        self.output_params = call.op.outputs_of(call.attrs)
        self.input_types, self.input_shapes = shown(self.input_params, call.inputs)
        self.output_types, self.output_shapes = shown(self.output_params, call.outputs)

    @property
    def aliases(self):
        inputs = [p.name for p in self.input_params]
        sources = [self.op.aliases.get(p.name) for p in self.output_params]
        return [-1 if source is None else inputs.index(source) for source in sources]

    def tensors(self, sizes, addresses=None):
        """Input and output tensors with numbers for run-time sizes; aliased outputs lie at their inputs."""
        case = PluginCase(self.call.sized(sizes))
        inputs = [
            Tensor(name, shape, 4096 * (1 + index))
            for index, (name, shape) in enumerate(
                zip(case.input_types, case.input_shapes, strict=True)
            )
        ]
        outputs = [
            Tensor(name, shape, inputs[source].address if source >= 0 else 1 << 20)
            for name, shape, source in zip(
                case.output_types, case.output_shapes, case.aliases, strict=True
            )
        ]
        return inputs, outputs

    def ranges(self, least, most):
        """Inputs of a profile in which run-time sizes go from `least` to `most`."""
        low, high = (PluginCase(self.call.sized(sizes)).input_shapes for sizes in (least, most))
        return [Range(*each) for each in zip(self.input_types, low, high, strict=True)]


def shown(params, tensors):
    """Types and shapes as TensorRT is shown them."""
    types = [ELEMENT_TYPES[DType(tensors[p.name][0])] for p in params]
    return types, [p.shown(tensors[p.name][1]) for p in params]
