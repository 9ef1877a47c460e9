"""Calls a reference op and holds inputs and outputs against its entry in the op table."""

from dsv4_trt.plugins.cuda_ops import DTYPES
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.reference import REFERENCES


def described(tensor):
    return DTYPES[tensor.dtype], tuple(tensor.shape)


def call_all(op, **arguments):
    """All outputs of an op by name; every rank's in a collective one."""
    entry = OPS[op]
    attrs = {name: arguments[name] for name in entry.attrs}
    inputs = {n: t for n, t in arguments.items() if n not in attrs and t is not None}
    outputs = REFERENCES[op](**arguments)
    for rank in range(len(next(iter(inputs.values()))) if entry.collective else 1):
        pick = (lambda value, r=rank: value[r]) if entry.collective else lambda value: value
        expected = entry.infer({n: described(pick(t)) for n, t in inputs.items()}, attrs)
        assert {n: described(pick(t)) for n, t in outputs.items()} == expected
    for output, source in entry.aliases.items():
        assert outputs[output] is inputs[source]
    return outputs


def call(op, **arguments):
    """The outputs of an op; a single one comes back as itself."""
    outputs = call_all(op, **arguments)
    return next(iter(outputs.values())) if len(outputs) == 1 else outputs
