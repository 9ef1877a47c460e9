"""Runs the layers that a build recorded, by the references: what the plan would give, were it to run.

The layers are those that TensorRT's network holds, read back from it; nothing of our graph is used but what
an output's name means.
"""

import torch

from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.reference import REFERENCES


class RecordedNetwork:
    """The place of a `Walk`: `run(ranks, inputs)` gives the first rank's outputs by role."""

    def __init__(self, layers, graph):
        self.layers = layers
        self.roles = graph.outputs
        self.dtypes = {v.name: TORCH[v.dtype] for v in graph.values.values()}

    @torch.inference_mode()
    def run(self, ranks, inputs):
        environments = [{**rank, **inputs} for rank in ranks]
        for layer in self.layers:
            if layer.op is not None and OPS[layer.op].collective:
                self._gather(layer, environments)
                continue
            for environment in environments:
                results = self._results(layer, environment)
                environment |= dict(zip(layer.outputs, results, strict=True))
        return {role: environments[0][name] for role, name in self.roles.items()}

    def _results(self, layer, environment):
        if layer.op is not None:
            arguments, outputs = _arguments(layer)
            tensors = {param: environment[name] for param, name in arguments.items()}
            results = REFERENCES[layer.op](**tensors, **layer.attrs)
            return [results[param] for param in outputs]
        given = [environment[name] for name in layer.inputs if name in environment]
        return [NATIVE[layer.kind](self, layer, given)]

    def _gather(self, layer, environments):
        arguments, (output,) = _arguments(layer)
        lists = {p: [env[name] for env in environments] for p, name in arguments.items()}
        results = REFERENCES[layer.op](**lists, **layer.attrs)[output]
        for environment, result in zip(environments, results, strict=True):
            environment[layer.outputs[0]] = result


def _arguments(layer):
    op = OPS[layer.op]
    inputs = [p.name for p in op.inputs_of(layer.attrs)]
    outputs = [p.name for p in op.outputs_of(layer.attrs)]
    assert len(outputs) == len(layer.outputs)
    return dict(zip(inputs, layer.inputs, strict=True)), outputs


TORCH = {
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "I32": torch.int32,
    "I8": torch.int8,
}
NATIVE = {
    "GATHER": lambda net, layer, t: t[0][t[1].long()],
    "CAST": lambda net, layer, t: t[0].to(net.dtypes[layer.outputs[0]]),
    "CONSTANT": lambda net, layer, t: torch.ones(1, dtype=torch.int64),
    "UNSQUEEZE": lambda net, layer, t: t[0].unsqueeze(int(t[1])),
    "SHUFFLE": lambda net, layer, t: t[0].unsqueeze(1),
    "CONCATENATION": lambda net, layer, t: torch.cat(t, dim=1),
    "ELEMENTWISE": lambda net, layer, t: t[0] + t[1],
}
