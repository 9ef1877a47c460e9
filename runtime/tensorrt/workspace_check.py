"""Holds the workspaces of a plan against the kernel library that runs it.

TensorRT keeps what plugins asked for when the plan was built, and a plugin is not told it. Kernels of a
library that need more would write into what lies behind.
"""

from __future__ import annotations

from dsv4_trt.errors import BundleMismatch
from dsv4_trt.graph import Graph
from dsv4_trt.plan_record import PlanRecord
from dsv4_trt.plugins.library import Library
from dsv4_trt.plugins.planned_workspaces import planned_workspaces


def check_workspaces(library: Library, graph: Graph, record: PlanRecord) -> None:
    """Raise `BundleMismatch` unless the plan has workspace enough for every plugin."""
    plugins = {layer.name for layer in record.layers if layer.op is not None}
    for profile in record.profiles:
        planned = record.workspaces.get(profile.name, {})
        needed = planned_workspaces(library, graph, profile.most)
        for node in sorted(needed.keys() & plugins):
            if needed[node] > planned.get(node, 0):
                raise BundleMismatch(
                    f"'{node}' of the plan of graph '{graph.name}' has {planned.get(node, 0):,} bytes of "
                    f"workspace, {library.path} takes {needed[node]:,}: the plan was built with another "
                    "version of the library; build the bundle again"
                )
