"""Device memory that an engine takes besides weights and KV pools: its largest steps, laid out."""

from __future__ import annotations

from math import prod

from dsv4_trt.graph import Dim, Graph, ValueKind
from dsv4_trt.plugins.library import Library
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.cuda.program import Placed, Program
from dsv4_trt.runtime.cuda.rungs import most_tokens
from dsv4_trt.runtime.cuda.schedule import schedule

_CONTEXT_BYTES = 1 << 30  # loaded kernels, captured graphs, torch's own pieces


def footprint(bundle: Bundle, library: Library, tails: int) -> int:
    """Bytes of activations, workspaces, outputs and block tables at the bundle's limits."""
    graphs = [graph for graph in (bundle.trunk, bundle.mtp) if graph is not None]
    build, layout = bundle.build, bundle.layout
    tables = sum(
        4 * len(kv.layers) * build.max_batch_size * kv.table_width(build.max_seq_len, tails)
        for kv in layout.classes.values()
    )
    arenas = [largest_program(graph, bundle, library, tails) for graph in graphs]
    return (
        max(p.arena_bytes for p in arenas) + sum(map(_kept_bytes, arenas)) + tables + _CONTEXT_BYTES
    )


def largest_program(graph: Graph, bundle: Bundle, library: Library, tails: int = 1) -> Program:
    """The graph at the most tokens, sequences and rows of logits of one step; at no address."""
    build, layout = bundle.build, bundle.layout
    sizes = {
        "num_tokens": most_tokens(build),
        "num_seqs": build.max_batch_size,
        "num_seqs_plus_1": build.max_batch_size + 1,
        "num_logits": build.max_batch_size,
        "num_decodes": build.max_batch_size,
        "num_table_rows": build.max_batch_size,
    }
    widths = {
        f"pages.{kv.cache_class}": kv.table_width(build.max_seq_len, tails)
        for kv in layout.classes.values()
    }

    def size(dim: Dim) -> int:
        return dim if isinstance(dim, int) else (sizes | widths).get(dim, 1)  # pools: one page

    own = set(graph.outputs.values())
    bound = {
        value.name: Placed.dense(0, value.dtype, tuple(size(dim) for dim in value.shape))
        for value in graph.values.values()
        if value.kind is not ValueKind.ACTIVATION or value.name in own
    }
    return Program(graph, schedule(graph), library, sizes, bound)


def _kept_bytes(program: Program) -> int:
    """Outputs, each with the copy that a caller gets, and the streams that another network hands over."""
    names = [*program.graph.outputs.values(), *(n for n in program.graph.values if n == "streams")]
    found = (program.tensor(name) for name in names)
    return sum(2 * prod(tensor.shape) * tensor.dtype.itemsize for tensor in found)
