"""Device memory that an engine takes besides weights and KV pools: its largest steps, laid out."""

from __future__ import annotations

from math import prod

from dsv4_trt.contract import BuildSpec, is_block_table
from dsv4_trt.graph import Dim, Graph, Value, ValueKind
from dsv4_trt.plugins.library import Library
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.cuda.placed import Placed
from dsv4_trt.runtime.cuda.program import Program
from dsv4_trt.runtime.cuda.schedule import schedule
from dsv4_trt.runtime.cuda.step_size import largest_step

_CONTEXT_BYTES = 1 << 30  # loaded kernels, captured graphs, torch's own pieces


def footprint(bundle: Bundle, arena_bytes: int, tails: int) -> int:
    """Bytes of the arena, outputs and block tables at the bundle's limits."""
    build, layout = bundle.build, bundle.layout
    tables = sum(
        4 * len(kv.layers) * build.max_batch_size * kv.table_width(build.max_seq_len, tails)
        for kv in layout.classes.values()
    )
    kept = [_kept_bytes(graph, build) for graph in bundle.graphs]
    return arena_bytes + sum(kept) + tables + _CONTEXT_BYTES


def native_arena_bytes(bundle: Bundle, library: Library, tails: int) -> int:
    """Activations and workspaces of the native engine, in steps of every size."""
    programs = [_unplaced(graph, bundle, library, tails) for graph in bundle.graphs]
    return max(program.most_bytes(bundle.build) for program in programs)


def _unplaced(graph: Graph, bundle: Bundle, library: Library, tails: int) -> Program:
    """A graph's program with weights, pools and tables of the right shapes at no address."""
    build = bundle.build
    widths = {
        f"pages.{kv.cache_class}": kv.table_width(build.max_seq_len, tails)
        for kv in bundle.layout.classes.values()
    }
    widths["num_table_rows"] = build.max_batch_size

    def size(dim: Dim) -> int:
        return dim if isinstance(dim, int) else widths.get(dim, 1)  # pools: one page

    program = Program(graph, schedule(graph), library, largest_step(build))
    fixed = [
        value
        for value in graph.values.values()
        if value.kind in (ValueKind.WEIGHT, ValueKind.KV) or is_block_table(value.name)
    ]
    program.bind({v.name: Placed.dense(0, v.dtype, tuple(map(size, v.shape))) for v in fixed})
    return program


def kept_values(graph: Graph) -> list[Value]:
    """Values in buffers of their own: outputs, and the streams that come from another network."""
    given = [value for value in graph.of_kind(ValueKind.INPUT) if value.name == "streams"]
    return given + [graph.values[name] for name in graph.outputs.values()]


def _kept_bytes(graph: Graph, build: BuildSpec) -> int:
    """Kept values, each with the copy that a caller gets or hands over."""
    most = largest_step(build)
    kept = kept_values(graph)
    return sum(2 * prod(most.shape(value)) * value.dtype.itemsize for value in kept)
