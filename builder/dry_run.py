"""What a build would make of a checkpoint, from shapes alone: no TensorRT needed, no file written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from dsv4_trt.builder.bundle import check_build, serving_graphs
from dsv4_trt.builder.lowering.layers import Kind, Layer, lower
from dsv4_trt.builder.lowering.plan import AUX_STREAMS
from dsv4_trt.builder.lowering.profiles import profiles
from dsv4_trt.builder.plans import PlanOptions
from dsv4_trt.builder.rank_files import check_rank_files
from dsv4_trt.contract import (
    BUILD_LOG_FILE,
    CONFIG_FILE,
    GENERATION_CONFIG_FILE,
    GRAPH_FILE,
    MANIFEST_FILE,
    PLAN_FILE,
    TOKENIZER_FILES,
    WEIGHTS_DIR,
    BuildSpec,
    engine_file,
    is_block_table,
    pool_bucket,
)
from dsv4_trt.convert.staging import check_output
from dsv4_trt.graph import Graph, Value, ValueKind
from dsv4_trt.plan_record import Profile
from dsv4_trt.rank_checkpoint import RankCheckpoint
from dsv4_trt.targets import TENSORRT, default_target


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDryRun:
    """One network; counts of plugins and native layers are empty for engine "native"."""

    num_nodes: int
    ops: dict[str, int]  # nodes of each op
    plugins: dict[str, int]  # of each op
    native_layers: dict[str, int]  # TensorRT's own, of each kind
    num_inputs: dict[str, int]  # by what they are
    weight_bytes: int  # of one rank
    pools: dict[str, int]  # pages of one layer and class each, by the pool they lie in
    num_outputs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What `build_bundle` would do."""

    engine: str
    target: str | None  # None: the GPU of the machine that builds
    world_size: int
    plugin_library: str | None  # None: Python twins, or none needed
    graphs: dict[str, GraphDryRun]
    page_bytes: dict[str, int]  # of each pool
    profiles: tuple[Profile, ...]
    max_aux_streams: int  # that TensorRT may use beside the main one
    files: tuple[str, ...]


def dry_run(
    checkpoint: RankCheckpoint, output_dir: Path, build: BuildSpec, plan_options: PlanOptions
) -> DryRun:
    """Look at what `build_bundle` would do, and refuse what it would, but for a TensorRT that is not here.

    Raises what `build_bundle` raises.
    """
    build = replace(build, target=build.target or default_target(build.engine))
    check_output(output_dir)
    check_build(checkpoint, build)
    plan_options.check(build.engine)
    check_rank_files(checkpoint)
    graphs, layout = serving_graphs(checkpoint, build)
    has_plans = build.engine in TENSORRT
    library = plan_options.plugin_library
    return DryRun(
        engine=build.engine,
        target=build.target,
        world_size=checkpoint.mapping.world_size,
        plugin_library=str(library) if library else None,
        graphs={name: _graph(graph, has_plans=has_plans) for name, graph in graphs.items()},
        page_bytes={str(bucket): size for bucket, size in layout.page_bytes.items()},
        profiles=profiles(build, layout) if has_plans else (),
        max_aux_streams=AUX_STREAMS if has_plans else 0,
        files=_files(checkpoint, list(graphs) if has_plans else []),
    )


def _graph(graph: Graph, *, has_plans: bool) -> GraphDryRun:
    inputs = [v for v in graph.values.values() if v.kind is not ValueKind.ACTIVATION]
    layers: tuple[Layer, ...] = ()
    if has_plans:
        lowered = lower(graph)
        layers, inputs = lowered.layers, [graph.values[tensor.name] for tensor in lowered.inputs]
    return GraphDryRun(
        num_nodes=len(graph.nodes),
        ops=_counts(node.op for node in graph.nodes),
        plugins=_counts(layer.op for layer in layers if layer.op is not None),
        native_layers=_counts(layer.kind for layer in layers if layer.kind is not Kind.PLUGIN),
        num_inputs=_counts(map(_what, inputs)),
        weight_bytes=sum(_nbytes(v) for v in inputs if v.kind is ValueKind.WEIGHT),
        pools=_counts(pool_bucket(v) for v in inputs if v.kind is ValueKind.KV),
        num_outputs=len(graph.outputs),
    )


def _counts(names: Iterable[str]) -> dict[str, int]:
    return {str(name): count for name, count in Counter(names).items()}


def _what(value: Value) -> str:
    if value.kind is ValueKind.INPUT:
        return "block_tables" if is_block_table(value.name) else "step"
    return {ValueKind.WEIGHT: "weights", ValueKind.KV: "pools"}[value.kind]


def _nbytes(weight: Value) -> int:
    return prod(int(dim) for dim in weight.shape) * weight.dtype.itemsize


def _files(checkpoint: RankCheckpoint, plans: list[str]) -> tuple[str, ...]:
    """All files of the bundle; `plans` are the graphs that become plans."""
    copied = (*TOKENIZER_FILES, GENERATION_CONFIG_FILE)
    ranks = range(checkpoint.mapping.world_size)
    return (
        *(CONFIG_FILE, GRAPH_FILE, MANIFEST_FILE),
        *(name for name in copied if (checkpoint.path / name).exists()),
        *(engine_file(rank, graph) for rank in ranks for graph in plans),
        *((PLAN_FILE, BUILD_LOG_FILE) if plans else ()),
        *(f"{WEIGHTS_DIR}/{file.name}" for file in checkpoint.rank_files),
    )
