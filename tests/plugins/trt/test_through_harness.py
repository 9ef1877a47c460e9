"""What compares plugins with their ops on a GPU, on ops of the host's memory: it runs, and it notices."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from dsv4_trt.contract import TABLE_ORDER
from dsv4_trt.plugins.cuda_ops import TORCH_DTYPES, cuda_ops
from dsv4_trt.plugins.library import CommunicatorArg
from tests.plugins.graph_calls import GRAPHS, graph_calls
from tests.plugins.trt import through_harness
from tests.plugins.trt.through_harness import PluginRun, checked

SIZES = {"num_seqs_plus_1": 4}


class RunsWhileCaptured:
    """A CUDA graph of a stream that can not hold anything back."""

    def replay(self):
        pass


@pytest.fixture
def host(recorded, monkeypatch):
    """The host's memory as a GPU: `run(op, arguments)` through the harness."""
    harness, library = recorded
    stream = SimpleNamespace(cuda_stream=0)
    for name, value in {
        "is_current_stream_capturing": lambda: False,
        "synchronize": lambda: None,
        "current_stream": lambda device=None: stream,
        "CUDAGraph": RunsWhileCaptured,
        "graph": lambda graph: nullcontext(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(through_harness, "harness", lambda path: harness)
    monkeypatch.setattr(through_harness, "ran", {})
    library._c.let_compute(1)
    library.plan_for(90)
    library.set_communicator(CommunicatorArg(1, 0, 2, 0, 0, 1, 1, 1))  # held, never called
    kernels = cuda_ops(library, poison=True)
    yield SimpleNamespace(
        run=lambda op, arguments: checked(library, op, kernels[op], **arguments),
        kernels=kernels,
        library=library,
    )
    library.clear_communicator()
    library.plan_for(0)
    library._c.let_compute(0)
    library._c.let_overrun(0)


def arguments(call):
    """Random bytes of small sizes; tables as transposed views, as the engine has them."""
    torch.manual_seed(0)
    sizes = {size: SIZES.get(size, 3) for size in call.sizes}
    made = {}
    for name, (dtype, shape) in call.sized(sizes).inputs.items():
        kind = TORCH_DTYPES[dtype]
        param = next(p for p in call.op.inputs if p.name == name)
        lying = tuple(shape[i] for i in param.order) if param.order else shape
        values = torch.randint(-128, 128, (*lying, kind.itemsize), dtype=torch.int8).view(kind)[
            ..., 0
        ]
        if param.order:
            values = values.permute(*[TABLE_ORDER.index(i) for i in range(3)])
        made[name] = values
    return {**{p.name: None for p in call.op.inputs}, **made, **call.attrs}


def small_calls(name):
    """Calls without the largest weights, whose bytes the host takes long over."""
    for call in graph_calls(name):
        sized = call.sized(dict.fromkeys(call.sizes, 3))
        elements = [torch.Size(shape).numel() for _, shape in sized.inputs.values()]
        if sum(elements) < 3_000_000:
            yield call


@pytest.mark.parametrize("name", [name for name in GRAPHS if name.startswith("tiny")])
def test_every_op_equals_its_plugin(host, name):
    for call in small_calls(name):
        before = host.library._c.kept_launches()
        host.run(call.op.name, arguments(call))
        assert (
            host.library._c.kept_launches() == before + 4
        )  # directly, twice in contexts, in a graph
    assert sum(through_harness.ran.values()) > 10


def first(name):
    return next(call for call in graph_calls("tiny") if call.op.name == name)


def test_another_result_is_noticed(host, monkeypatch):
    call = first("embed")
    init = PluginRun.__init__

    def other(self, harness, op, attrs, before, expected):
        changed = expected["out"].clone()
        changed.view(torch.int8).view(-1)[-1] ^= 1
        init(self, harness, op, attrs, before, {"out": changed})

    monkeypatch.setattr(PluginRun, "__init__", other)
    with pytest.raises(AssertionError, match=r"'out' of plugin 'embed' in a context is not that"):
        host.run("embed", arguments(call))


def test_a_pool_that_is_written_otherwise_is_noticed(host, monkeypatch):
    monkeypatch.setattr(through_harness, "copies", zeroed(through_harness.copies))
    with pytest.raises(
        AssertionError, match=r"of plugin 'qkv_rope_insert' in a context is not that"
    ):
        host.run("qkv_rope_insert", arguments(first("qkv_rope_insert")))


def zeroed(copies):
    """As if the plugin had got another pool than the op."""

    def other(tensors):
        made = copies(tensors)
        made["pool"].zero_()
        return made

    return other


def test_a_write_behind_the_workspace_is_noticed(host):
    def then_overrun(**given):
        found = host.kernels["embed"](**given)
        host.library._c.let_overrun(1)
        return found

    given = arguments(first("embed"))
    with pytest.raises(
        AssertionError, match="plugin 'embed' wrote behind its workspace in a context"
    ):
        checked(host.library, "embed", then_overrun, **given)


def test_while_a_graph_is_captured_only_the_op_is_run(host, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    before = host.library._c.kept_launches()
    host.run("embed", arguments(first("embed")))
    assert host.library._c.kept_launches() == before + 1
