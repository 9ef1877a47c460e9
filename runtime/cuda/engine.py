"""The native engine on a GPU: each graph as launches of kernels."""

from __future__ import annotations

import torch

from dsv4_trt.graph import Graph
from dsv4_trt.kv_plan import KvPlan
from dsv4_trt.plugins.costs import H200
from dsv4_trt.plugins.library import Library
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.cuda.device_engine import DeviceEngine
from dsv4_trt.runtime.cuda.profile import Profiler
from dsv4_trt.runtime.cuda.program import Program
from dsv4_trt.runtime.cuda.schedule import schedule
from dsv4_trt.runtime.cuda.step_size import largest_step


class CudaEngine(DeviceEngine):
    """Runs a bundle's graphs on one GPU through the kernel library."""

    def __init__(
        self,
        bundle: Bundle,
        plan: KvPlan,
        library: Library,
        device: torch.device,
        *,
        use_cuda_graphs: bool = True,
        side_streams: bool = True,
    ) -> None:
        self._programs: dict[str, Program] = {}

        def make_program(graph: Graph) -> Program:
            placements = schedule(graph, side_streams=side_streams)
            program = Program(graph, placements, library, largest_step(bundle.build))
            self._programs[graph.name] = program
            return program

        super().__init__(
            bundle, plan, library, device, make_program, use_cuda_graphs=use_cuda_graphs
        )

    def profile(self) -> Profiler:
        """From here on the trunk runs launch by launch, and the profiler adds up what each op takes."""
        profiler = Profiler(self._programs["trunk"], H200)
        self._networks["trunk"].profiler = profiler
        return profiler

    def end_profile(self) -> None:
        """Run steps as usual again."""
        self._networks["trunk"].profiler = None
