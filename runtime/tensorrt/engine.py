"""The engine of TensorRT plans: each graph as its plan."""

from __future__ import annotations

import torch

from dsv4_trt.graph import Graph
from dsv4_trt.kv_plan import KvPlan
from dsv4_trt.plugins.library import Library
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.cuda.device_engine import DeviceEngine
from dsv4_trt.runtime.tensorrt.plan import load_plan
from dsv4_trt.runtime.tensorrt.program import PlanProgram


class TensorRTEngine(DeviceEngine):
    """Runs a bundle's TensorRT plans on one GPU.

    Raises what `load_plan` raises, before weights are loaded.
    """

    def __init__(
        self,
        bundle: Bundle,
        plan: KvPlan,
        library: Library,
        device: torch.device,
        *,
        use_cuda_graphs: bool = True,
    ) -> None:
        def make_program(graph: Graph) -> PlanProgram:
            return PlanProgram(load_plan(bundle, graph, library), graph)

        super().__init__(
            bundle, plan, library, device, make_program, use_cuda_graphs=use_cuda_graphs
        )
