"""Plugins in execution contexts, by several threads, and what a launch without a GPU says."""

import threading

import pytest
import torch

from dsv4_trt.errors import PluginError
from dsv4_trt.plugins.harness_plugin import Tensor
from dsv4_trt.plugins.plugin_fields import field
from tests.plugins.graph_calls import graph_calls
from tests.plugins.trt.plugin_case import PluginCase

ADD = (
    [Tensor("FLOAT", (4, 64), 4096), Tensor("BF16", (4, 64), 8192)],
    [Tensor("FLOAT", (4, 64), 12288)],
)
NOTHING = [Tensor("FLOAT", (0, 64)), Tensor("BF16", (0, 64))], [Tensor("FLOAT", (0, 64))]
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is present")


@pytest.fixture
def add(create):
    return create("add", [field("out_dtype", "CHAR", "F32")], "runtime")


@pytest.fixture
def context(harness):
    made = harness.context()
    yield made
    assert made.references == 0  # nothing is left that would report to it
    made.close()


def test_an_attached_plugin_is_a_clone_that_reports_to_its_context(harness, add, context):
    attached = add.attach(context)
    assert attached.serialized() == add.serialized()
    assert attached.capabilities == {"core", "runtime"}
    assert context.references == 1
    with pytest.raises(PluginError, match="onShapeChange"):
        attached.shape_change(ADD[0], [Tensor("FLOAT", (5, 64))])
    [error] = context.errors()
    assert error.startswith("4: plugin 'add' (out_dtype=F32): onShapeChange: output 'out' has")
    with pytest.raises(PluginError):
        add.shape_change(ADD[0][:1], ADD[1])
    assert context.errors() == []  # the one that is not attached has nobody to report to
    attached.close()


def test_clones_of_an_attached_plugin_report_too_and_outlive_it(add, context):
    attached = add.attach(context)
    copy = attached.clone()
    assert context.references == 2
    attached.close()
    with pytest.raises(PluginError):
        copy.shape_change([], [])
    assert len(context.errors()) == 1
    copy.close()


def test_two_contexts_hear_of_their_own_plugin_alone(harness, add, context):
    other = harness.context()
    plugins = [add.attach(context), add.attach(other)]
    with pytest.raises(PluginError):
        plugins[1].shape_change([], [])
    assert context.errors() == []
    assert len(other.errors()) == 1
    for plugin in plugins:
        plugin.close()
    assert other.references == 0
    other.close()


def test_a_launch_of_nothing_needs_no_gpu(add, context):
    attached = add.attach(context)
    attached.shape_change(*NOTHING)
    attached.enqueue(*NOTHING, 0, 0)
    assert context.errors() == []
    attached.close()


@NO_GPU
def test_a_launch_without_a_gpu_is_an_error_of_the_context(add, context):
    attached = add.attach(context)
    with pytest.raises(PluginError, match=r"ERROR: plugin 'add' .*enqueue: op 'add': "):
        attached.enqueue(*ADD, 0, 0)
    [error] = context.errors()
    assert error.startswith("7: plugin 'add'")
    attached.close()


def test_an_aliased_output_must_lie_at_its_input(create):
    for call in graph_calls("tiny"):
        case = PluginCase(call)
        if not case.op.aliases:
            continue
        plugin = create(case.op.name, case.fields)
        inputs, outputs = case.tensors(dict.fromkeys(call.sizes, 2))
        for index, source in enumerate(case.aliases):
            if source < 0:
                continue
            moved = [*outputs]
            moved[index] = Tensor(outputs[index].type, outputs[index].shape, 1 << 30)
            name = case.output_params[index].name
            with pytest.raises(PluginError, match=f"output '{name}' is at another address than"):
                plugin.enqueue(inputs, moved, 0, 0)


@NO_GPU
def test_workspace_that_is_needed_and_not_given_is_an_error(create):
    sample = next(call for call in graph_calls("tiny") if call.op.name == "index_topk")
    case = PluginCase(sample)
    plugin = create(case.op.name, case.fields)
    inputs, outputs = case.tensors({**dict.fromkeys(sample.sizes, 2), **PAGES})
    with pytest.raises(PluginError, match=r"enqueue: no workspace was given; expected \d+ bytes"):
        plugin.enqueue(inputs, outputs, 0, 0)


PAGES = {"pages.indexer": 64}


def test_many_threads_use_one_plugin(harness, create, library):
    """Each clones, attaches, is told shapes, plans and launches; every error reaches its own context."""
    calls = [PluginCase(call) for call in graph_calls("tiny")]
    plugins = [create(case.op.name, case.fields) for case in calls]
    failures = []

    def work(seed):
        context = harness.context()
        try:
            for case, plugin in list(zip(calls, plugins, strict=True))[seed:]:
                sizes = dict.fromkeys(case.call.sizes, 3 + seed)
                attached = plugin.attach(context)
                inputs, outputs = case.tensors(sizes)
                attached.shape_change(inputs, outputs)
                assert plugin.workspace(case.ranges(sizes, sizes)) >= 0
                assert attached.clone().close() is None
                attached.close()
            assert context.errors() == []
            assert context.references == 0
        except Exception as error:
            failures.append(error)
        context.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
