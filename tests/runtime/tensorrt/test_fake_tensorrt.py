"""The fake holds to TensorRT's API and rules: its names are those of the real bindings."""

import inspect
import re

import pytest
import torch

pytest.importorskip("cuda.bindings")
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.tensorrt.plan import load_plan
from tests.runtime.tensorrt import fake_tensorrt
from tests.runtime.tensorrt.host import Host

ENUMS = (
    "TensorIOMode",
    "DataType",
    "TensorLocation",
    "TensorFormat",
    "ExecutionContextAllocationStrategy",
    "DynamicShapesKernelSpecializationStrategy",
)
CLASSES = (
    "Runtime",
    "ICudaEngine",
    "IExecutionContext",
    "IRuntimeConfig",
    "IPluginRegistry",
    "ILogger",
)
RTX_ONLY = {  # TensorRT 11 compiles nothing at run time
    "DynamicShapesKernelSpecializationStrategy",
    "create_runtime_cache",
    "set_runtime_cache",
}
SUMMARY = re.compile(r"^(?:\d+\. )?\w+\((?P<arguments>.*?)\) -> (?P<result>.*)$", re.M)


@pytest.fixture(params=["tensorrt_rtx", "tensorrt_lean"])
def real(request):
    """Bindings that are installed; of TensorRT 11 those of its lean runtime, which is a part of it."""
    return pytest.importorskip(request.param)


def test_every_name_is_one_of_tensorrt(real):
    is_rtx = real.__name__ == "tensorrt_rtx"
    for name in (*ENUMS, *CLASSES):
        if name in RTX_ONLY and not is_rtx:
            continue
        if name == "TensorFormat" and not is_rtx:  # the lean bindings leave it out
            continue
        fake, found = getattr(fake_tensorrt, name), getattr(real, name)
        used = fake.__members__ if name in ENUMS else public(fake)
        for attribute in used:
            if is_rtx or attribute not in RTX_ONLY:
                assert hasattr(found, attribute), f"{name}.{attribute}"


def public(fake):
    """What product code can have used: attributes that tests look at are private, or `calls`."""
    return {name for name in vars(fake) if not name.startswith("_")} - {"calls", "Severity"}


def test_every_call_takes_what_tensorrt_s_takes(real):
    checked = 0
    for name in CLASSES:
        for attribute in public(getattr(fake_tensorrt, name)):
            function = getattr(getattr(fake_tensorrt, name), attribute)
            document = getattr(getattr(real, name, None), attribute, None).__doc__ or ""
            overloads = [m["arguments"] for m in SUMMARY.finditer(document)]
            if callable(function) and overloads:
                count = len(inspect.signature(function).parameters)
                counts = {len(re.findall(r"(?:^|, )\*?\w+: ", found)) for found in overloads}
                assert count in counts, f"{name}.{attribute}: {overloads}"
                checked += 1
    assert checked > 15


def test_calls_that_can_fail_return_what_tensorrt_s_do(real):
    """Booleans, or None for an object; product code looks at them."""
    context = real.IExecutionContext
    for name in (
        "set_optimization_profile_async",
        "set_input_shape",
        "set_tensor_address",
        "execute_async_v3",
    ):
        [*_, last] = SUMMARY.finditer(getattr(context, name).__doc__)
        assert last["result"] == "bool", name
    for name in ("set_aux_streams", "set_device_memory"):
        [*_, last] = SUMMARY.finditer(getattr(context, name).__doc__)
        assert last["result"] == "None", name


@pytest.fixture
def context(plan_dir, host):
    """A context that is ready to run the smallest step, and its module."""
    bundle = open_bundle(plan_dir)
    found = load_plan(bundle, bundle.trunk, host.library).new_context()
    found.set_optimization_profile_async(0, 7)
    found.set_aux_streams([8, 9])
    found.kept = []
    memory = host.gpu.memory
    for name, tensor in found._engine._tensors.items():
        shape = [1 if isinstance(dim, str) else dim for dim in tensor["shape"]]
        shape = [
            2 if dim == "num_seqs_plus_1" else s
            for dim, s in zip(tensor["shape"], shape, strict=True)
        ]
        buffer = memory.empty(4 * int(torch.tensor(shape).prod()), dtype=torch.int8).zero_()
        found.kept.append(buffer)
        if tensor["mode"] == "INPUT" and fake_tensorrt._is_sized(tensor):
            assert found.set_input_shape(name, shape)
        assert found.set_tensor_address(name, buffer.data_ptr())
    arena = memory.empty(1 << 20, dtype=torch.int8)
    found.kept.append(arena)
    found.set_device_memory(arena.data_ptr(), 1 << 20)
    return found


def errors(host):
    from dsv4_trt.runtime.tensorrt.bindings import load_bindings

    return load_bindings("tensorrt").log.take_errors()


def test_a_ready_context_has_no_problem(context):
    assert context._problem(7) is None


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda c: c.set_device_memory(c._memory[0], 100), "100 bytes of device memory"),
        (lambda c: c.set_device_memory(12345 << 8, 1 << 20), "bytes of device memory at"),
        (lambda c: c.set_tensor_address("head", 0), "head has no address"),
        (lambda c: c.set_input_shape("positions", (2,)), "dimension num_tokens of positions is 2"),
        (lambda c: c.set_optimization_profile_async(1, 7), "has no shape"),
    ],
)
def test_a_context_that_is_not_ready_does_not_run(host, context, spoil, message):
    assert spoil(context) is not False
    assert not context.execute_async_v3(7)
    assert message in errors(host)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.set_input_shape("positions", (5,)), "positions"),
        (lambda c: c.set_input_shape("positions", (1, 1)), "positions"),
        (lambda c: c.set_input_shape("head", (1,)), "'head' is no input"),
        (lambda c: c.set_tensor_address("head", 128), "not at 256 bytes"),
        (lambda c: c.set_tensor_address("nothing", 256), "'nothing' is no input or output"),
        (lambda c: c.set_optimization_profile_async(2, 7), "no profile 2"),
        (lambda c: c.execute_async_v3(0), "default one"),
        (lambda c: c.execute_async_v3(8), "another stream"),
    ],
)
def test_calls_against_the_rules_are_refused(host, context, call, message):
    assert call(context) is False
    assert message in errors(host)


def test_a_capture_needs_a_run_before_it(host, context):
    host.gpu.captured = []
    assert not context.execute_async_v3(7)
    assert "captured without a run" in errors(host)
    host.gpu.captured = None
    context._is_ready = True
    host.gpu.captured = []
    assert context.execute_async_v3(7)
    assert len(host.gpu.captured) == 1
    with pytest.raises(AssertionError, match="while a graph is captured"):
        context.set_device_memory(0, 0)


def test_contexts_have_their_own_state(plan_dir, monkeypatch):
    host = Host(monkeypatch)
    bundle = open_bundle(plan_dir)
    plan = load_plan(bundle, bundle.trunk, host.library)
    one, other = plan.new_context(), plan.new_context()
    one.set_optimization_profile_async(0, 7)
    assert one.set_input_shape("positions", (3,))
    assert not other.set_input_shape("positions", (3,))
