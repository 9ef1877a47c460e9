"""Holds a plan against its graph and its record: every input and output, every profile, every pool.

A plan computes on bare addresses, so whatever differs would be wrong numbers and not an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsv4_trt.errors import BundleMismatch
from dsv4_trt.graph import Graph, ValueKind
from dsv4_trt.plan_record import PlanRecord, PlanTensor
from dsv4_trt.runtime.cuda.schedule import NUM_STREAMS
from dsv4_trt.runtime.cuda.step_size import SIZE_NAMES


def check_contract(trt: Any, engine: Any, graph: Graph, record: PlanRecord) -> None:
    """Raise `BundleMismatch` unless plan, record and graph speak of the same network."""
    faults = [*_record_faults(graph, record)] or [*_plan_faults(trt, engine, record)]
    if faults:
        raise BundleMismatch(
            f"the plan of graph '{graph.name}' is another network's: {faults[0]}"
            + (f", and {len(faults) - 1} more" if len(faults) > 1 else "")
            + "; build the bundle again"
        )


def _record_faults(graph: Graph, record: PlanRecord) -> Iterator[str]:
    """How the record differs from the graph; inputs that no layer reads may be missing."""
    inputs = {v.name: v for v in graph.values.values() if v.kind is not ValueKind.ACTIVATION}
    outputs = {name: graph.values[name] for name in graph.outputs.values()}
    for what, tensors, values in (
        ("input", record.inputs, inputs),
        ("output", record.outputs, outputs),
    ):
        for tensor in tensors:
            value = values.pop(tensor.name, None)
            if value is None:
                yield f"the record has an {what} '{tensor.name}', which the graph has not"
            elif tensor != (shown := PlanTensor.of(value)):
                yield f"{what} '{tensor.name}' is recorded as {_text(tensor)}, expected {_text(shown)}"
    read = {name for layer in record.layers for name in layer.inputs}
    for name in (*(inputs.keys() & read), *outputs):
        yield f"the record lacks '{name}', which the graph has"
    if not record.profiles:
        yield "the record has no profiles"
    dims = {dim for tensor in record.inputs for dim in tensor.shape if isinstance(dim, str)}
    for profile in record.profiles:
        for name in sorted(dims.union(SIZE_NAMES) - profile.sizes.keys()):
            yield f"profile '{profile.name}' of the record has no range of {name}"
    if _pairs(record) != _graph_pairs(graph):
        yield "its layers write other pools in place than the graph's nodes"


def _plan_faults(trt: Any, engine: Any, record: PlanRecord) -> Iterator[str]:
    """How the plan differs from its record."""
    found = {engine.get_tensor_name(index) for index in range(engine.num_io_tensors)}
    expected = {t.name: "INPUT" for t in record.inputs} | {t.name: "OUTPUT" for t in record.outputs}
    yield from (
        f"it has a tensor '{name}' beyond its record" for name in sorted(found - {*expected})
    )
    yield from (f"it lacks '{name}'" for name in sorted(expected.keys() - found))
    for tensor in (*record.inputs, *record.outputs):
        if tensor.name in found:
            yield from _tensor_faults(trt, engine, tensor, expected[tensor.name])
    if engine.num_optimization_profiles != len(record.profiles):
        yield f"it has {engine.num_optimization_profiles} profiles, expected {len(record.profiles)}"
    else:
        yield from _profile_faults(engine, record, found)
    if engine.num_aux_streams >= NUM_STREAMS:
        yield f"it runs on {engine.num_aux_streams + 1} streams, {NUM_STREAMS} at most are given to it"


def _tensor_faults(trt: Any, engine: Any, tensor: PlanTensor, mode: str) -> Iterator[str]:
    name = tensor.name
    is_dynamic = [-1 if isinstance(dim, str) else dim for dim in tensor.shape]
    for what, found, expected in (
        ("mode", engine.get_tensor_mode(name), getattr(trt.TensorIOMode, mode)),
        ("type", engine.get_tensor_dtype(name), getattr(trt.DataType, tensor.dtype)),
        ("shape", [*engine.get_tensor_shape(name)], is_dynamic),
        ("location", engine.get_tensor_location(name), trt.TensorLocation.DEVICE),
        ("format", engine.get_tensor_format(name), trt.TensorFormat.LINEAR),
    ):
        if found != expected:
            yield f"the {what} of '{name}' is {found}, expected {expected}"
    if mode == "OUTPUT" and engine.get_aliased_input_tensor(name):
        yield f"output '{name}' lies in its input '{engine.get_aliased_input_tensor(name)}'"


def _profile_faults(engine: Any, record: PlanRecord, found: set[str]) -> Iterator[str]:
    for index, profile in enumerate(record.profiles):
        for tensor in record.inputs:
            if tensor.name not in found or not tensor.is_sized:
                continue
            expected = [[*shape] for shape in profile.shapes(tensor)]
            shapes = [[*dims] for dims in engine.get_tensor_profile_shape(tensor.name, index)]
            if shapes != expected:
                yield (
                    f"profile '{profile.name}' takes '{tensor.name}' of {shapes}, expected {expected}"
                )


def _pairs(record: PlanRecord) -> dict[str, str]:
    return {to: source for layer in record.layers for to, source in layer.aliases.items()}


def _graph_pairs(graph: Graph) -> dict[str, str]:
    return {
        node.outputs[to]: node.inputs[source]
        for node in graph.nodes
        for to, source in node.aliases.items()
    }


def _text(tensor: PlanTensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"
