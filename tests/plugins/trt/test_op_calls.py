"""A plugin's launch is the op's call that the native engine would make: every field of it, for real graphs.

Compiled for the test, with TensorRT's headers but without kernels: ops keep what they are called with.
"""

import ctypes
import random

import pytest

from dsv4_trt.errors import PluginError
from dsv4_trt.plugins.library import CallArg, Library, set_tensor
from dsv4_trt.plugins.ops import OPS
from tests.plugins.graph_calls import GRAPHS, dense, graph_calls, sample_call
from tests.plugins.trt.plugin_case import PluginCase

WORKSPACE, STREAM = 1 << 40, 77


def engine_call(library, call, inputs, outputs):
    """The call as the native engine makes it, tensors at the plugin's addresses."""
    made = library.call(call.op, call.attrs)
    params = call.op.inputs_of(call.attrs)
    for param, given in zip(params, inputs, strict=True):
        dtype, shape = call.inputs[param.name]
        strides = dense(shape)
        if param.order:  # memory is dense in that order
            in_memory = dense([shape[i] for i in param.order])
            strides = tuple(in_memory[param.order.index(i)] for i in range(len(shape)))
        set_tensor(made.inputs[param.name], given.address, dtype, shape, strides)
    for (name, (dtype, shape)), given in zip(call.outputs.items(), outputs, strict=True):
        set_tensor(made.outputs[name], given.address, dtype, shape, dense(shape))
    return made


def fields(arg):
    rank = arg.rank
    return arg.data, arg.dtype if rank else 0, rank, arg.shape[:rank], arg.stride[:rank]


def kept(library):
    library._c.kept_call.restype = ctypes.POINTER(CallArg)
    for name in ("kept_workspace", "kept_stream"):
        getattr(library._c, name).restype = ctypes.c_void_p
    call = library._c.kept_call().contents
    return call, library._c.kept_workspace(), library._c.kept_stream()


@pytest.mark.parametrize("name", [*GRAPHS, "sample"])
def test_a_launch_is_the_call_of_the_native_engine(recorded, name):
    harness, library = recorded
    draw = random.Random(name)
    for call in [sample_call()] if name == "sample" else graph_calls(name):
        case = PluginCase(call)
        plugin = harness.create(call.op.name, case.fields, "runtime")
        sizes = {size: draw.randint(1, 9) for size in call.sizes}
        inputs, outputs = case.tensors(sizes)
        plugin.shape_change(inputs, outputs)
        plugin.enqueue(inputs, outputs, WORKSPACE, STREAM)
        expected = engine_call(library, call.sized(sizes), inputs, outputs)
        found, workspace, stream = kept(library)
        assert (found.op, workspace, stream) == (expected.arg.op, WORKSPACE, STREAM)
        for side, params in (("inputs", call.op.inputs), ("outputs", call.op.outputs)):
            for index, param in enumerate(params):
                pair = getattr(found, side)[index], getattr(expected.arg, side)[index]
                assert fields(pair[0]) == fields(pair[1]), (call.op.name, param.name)
        for index, (attr, spec) in enumerate(call.op.attrs.items()):
            member = {int: "i", bool: "i", float: "f", str: "s"}[spec.type]
            pair = getattr(found.attrs[index], member), getattr(expected.arg.attrs[index], member)
            if spec.type is float:  # kernels take fp32
                pair = tuple(ctypes.c_float(value).value for value in pair)
            assert pair[0] == pair[1], (call.op.name, attr)
        plugin.close()


def test_what_is_refused_is_not_launched(recorded):
    harness, library = recorded
    call = next(call for call in graph_calls("tiny") if call.op.name == "qkv_rope_insert")
    case = PluginCase(call)
    plugin = harness.create(call.op.name, case.fields, "runtime")
    inputs, outputs = case.tensors(dict.fromkeys(call.sizes, 4))
    before = library._c.kept_launches()
    for moved, workspace in (([*outputs[:2], inputs[0]], WORKSPACE), (outputs, 0)):
        with pytest.raises(PluginError, match=r"at another address|no workspace was given"):
            plugin.enqueue(inputs, moved, workspace, STREAM)
    assert library._c.kept_launches() == before
    plugin.enqueue(inputs, outputs, WORKSPACE, STREAM)
    assert library._c.kept_launches() == before + 1
    plugin.close()


def test_the_recording_library_has_all_ops(recorded):
    assert isinstance(recorded[1], Library)
    assert recorded[0].creators.keys() == OPS.keys()
    assert recorded[1].tensorrt_version == "recording"
