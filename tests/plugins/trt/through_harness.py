"""Runs an op on the GPU as its plugin, through all stages of a plan's life, and compares it with the op.

Built, planned, stored, made again for running, attached to two contexts, launched in each, and captured in
a CUDA graph that is replayed: the bytes of every output, and of every pool that is written in place, must
be those of the op called directly. Outputs and workspace are poisoned; of the workspace there is as much
as was planned, and what lies behind it must stay as it is.
"""

from __future__ import annotations

import warnings
from functools import cache

import torch

from dsv4_trt.plan_record import ELEMENT_TYPES
from dsv4_trt.plugins.cuda_ops import DTYPES
from dsv4_trt.plugins.harness_plugin import Range, Tensor
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.plugin_fields import fields_of
from dsv4_trt.plugins.plugin_harness import Harness

GUARD = 4096  # bytes behind the workspace
ran: dict[str, int] = {}  # how many calls of each op were compared


@cache
def harness(path):
    return Harness(path)


def checked(library, op_name, kernel, **arguments):
    """`kernel(**arguments)`, which its plugin must equal; inside a capture only the kernel is run."""
    if torch.cuda.is_current_stream_capturing():
        return kernel(**arguments)
    op = OPS[op_name]
    attrs = {name: arguments[name] for name in op.attrs}
    inputs = {p.name: arguments[p.name] for p in op.inputs_of(attrs)}
    before = copies(inputs)
    found = kernel(**arguments)
    torch.cuda.synchronize()
    run = PluginRun(harness(library.path), op, attrs, before, found)
    run.in_contexts()
    ran[op_name] = ran.get(op_name, 0) + 1
    return found


class PluginRun:
    """One call: inputs as they were before it, and what the op made of them."""

    def __init__(self, harness, op, attrs, before, expected):
        self.harness, self.op, self.before, self.expected = harness, op, before, expected
        self.fields = fields_of(op, attrs)
        self.params = op.inputs_of(attrs)
        self.results = op.outputs_of(attrs)

    def in_contexts(self):
        runtime, workspace_bytes = self.loaded()
        contexts = [self.harness.context() for _ in range(2)]
        attached = [runtime.attach(context) for context in contexts]
        try:
            for plugin in attached:
                self.launch(plugin, workspace_bytes, captured=False)
            self.launch(attached[0], workspace_bytes, captured=True)
            for context in contexts:
                assert context.errors() == []
        finally:
            for plugin in (*attached, runtime):
                plugin.close()
            for context in contexts:
                assert context.references == 0
                context.close()

    def loaded(self):
        """A plugin as a stored and loaded plan has it, and the workspace planned for these sizes."""
        built = self.harness.create(self.op.name, self.fields)
        ranges = [Range(self.type_of(p), shape, shape) for p, shape in self.shapes()]
        built.configure(ranges)
        assert built.output_types([r.type for r in ranges]) == [
            self.type_of(p) for p in self.results
        ]
        planned, stored = built.workspace(ranges), built.serialized()
        built.close()
        return self.harness.create(self.op.name, stored, "runtime"), planned

    def launch(self, plugin, workspace_bytes, *, captured):
        memory = Memory(self, workspace_bytes)
        inputs, outputs = memory.tensors()
        plugin.shape_change(inputs, outputs)

        def enqueue():
            stream = torch.cuda.current_stream().cuda_stream
            plugin.enqueue(inputs, outputs, memory.workspace.data_ptr(), stream)

        if captured:
            graph = torch.cuda.CUDAGraph()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "The CUDA Graph is empty")  # of no rows
                with torch.cuda.graph(graph):
                    enqueue()
            graph.replay()
        else:
            enqueue()
        torch.cuda.synchronize()
        memory.check("in a CUDA graph" if captured else "in a context")

    def type_of(self, param):
        tensors = self.before if param in self.params else self.expected
        return ELEMENT_TYPES[DTYPES[tensors[param.name].dtype]]

    def shapes(self):
        return [(p, p.shown(tuple(self.before[p.name].shape))) for p in self.params]


class Memory:
    """Inputs of a launch as TensorRT would lay them, outputs and workspace, both poisoned."""

    def __init__(self, run, workspace_bytes):
        self.run = run
        mine = copies(run.before)
        self.inputs = {p.name: in_memory_order(p, mine[p.name]) for p in run.params}
        self.outputs = {}
        for param in run.results:
            source = run.op.aliases.get(param.name)
            made = self.inputs[source] if source else poisoned(run.expected[param.name])
            self.outputs[param.name] = made
        device = next(iter(mine.values())).device
        self.workspace = torch.full((workspace_bytes + GUARD,), -1, dtype=torch.int8, device=device)
        self.workspace[workspace_bytes:] = 0x33
        self.workspace_bytes = workspace_bytes

    def tensors(self):
        return [
            [
                Tensor(
                    self.run.type_of(p), tuple(tensors[p.name].shape), tensors[p.name].data_ptr()
                )
                for p in params
            ]
            for params, tensors in (
                (self.run.params, self.inputs),
                (self.run.results, self.outputs),
            )
        ]

    def check(self, where):
        name = self.run.op.name
        for output, value in self.outputs.items():
            same = torch.equal(raw(value), raw(self.run.expected[output]))
            assert same, f"'{output}' of plugin '{name}' {where} is not that of the op"
        behind = self.workspace[self.workspace_bytes :]
        assert (behind == 0x33).all(), f"plugin '{name}' wrote behind its workspace {where}"


def copies(tensors):
    """Dense copies on the GPU, or of the same strides where memory is in another order; one stays one."""
    made = {}
    for value in tensors.values():
        if id(value) not in made:
            made[id(value)] = value.clone(memory_format=torch.preserve_format)
    return {name: made[id(value)] for name, value in tensors.items()}


def in_memory_order(param, tensor):
    """A dense tensor with the dimensions that TensorRT is shown."""
    return tensor.permute(*param.order).contiguous() if param.order else tensor.contiguous()


def poisoned(like):
    made = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    made.view(torch.int8).fill_(0x55 if made.dtype is torch.int32 else -1)
    return made


def raw(tensor):
    return tensor.contiguous().view(torch.int8)
