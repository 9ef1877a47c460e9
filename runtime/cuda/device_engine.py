"""What engines on a GPU share: weights, slabs, and a network for each graph."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dsv4_trt.contract import pool_bucket
from dsv4_trt.dtypes import DType
from dsv4_trt.graph import Graph, ValueKind
from dsv4_trt.kv_layout import Bucket
from dsv4_trt.kv_plan import KvPlan
from dsv4_trt.ladder import StepLadders
from dsv4_trt.plugins.library import Library
from dsv4_trt.runtime.batch import IntArray, StepBatch, StepOutput
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.cuda.network import Network, SharedArena
from dsv4_trt.runtime.cuda.placed import Placed
from dsv4_trt.runtime.cuda.step_program import StepProgram
from dsv4_trt.runtime.cuda.weights import DeviceWeights, load_device_weights
from dsv4_trt.runtime.engine import no_mtp_block
from dsv4_trt.runtime.graph_check import check_graph
from dsv4_trt.runtime.open import check_one_rank
from dsv4_trt.runtime.slabs import allocate_slabs
from dsv4_trt.step_ladders import step_ladders


class DeviceEngine:
    """Runs a bundle's graphs on one GPU, each by the program that `make_program` gives for it.

    See `runtime.engine.Engine`.
    """

    def __init__(
        self,
        bundle: Bundle,
        plan: KvPlan,
        library: Library,
        device: torch.device,
        make_program: Callable[[Graph], StepProgram],
        *,
        use_cuda_graphs: bool = True,
    ) -> None:
        check_one_rank(bundle)
        bundle.check_layout(plan.layout)
        self.spec = bundle.spec
        self.build = bundle.build
        self.layout = plan.layout
        self.plan = plan
        self.ladders: StepLadders | None = step_ladders(bundle.build)
        self.owner: object = None
        for graph in bundle.graphs:
            check_graph(graph)
        programs = [make_program(graph) for graph in bundle.graphs]
        self.weights: DeviceWeights = load_device_weights(bundle, bundle.graphs, library, device)
        self.slabs = allocate_slabs(plan, device)
        arena = SharedArena(device)
        self._networks: dict[str, Network] = {}
        for graph, program in zip(bundle.graphs, programs, strict=True):
            program.bind(self._constants(graph))
            self._networks[graph.name] = Network(
                graph,
                program,
                library,
                bundle.build,
                arena,
                device,
                use_cuda_graphs=use_cuda_graphs,
            )

    def step(self, batch: StepBatch, *, want_streams: bool = False) -> StepOutput:
        """Run the trunk; KV pages named by the batch are updated in place."""
        return self._networks["trunk"].step(batch, want_streams=want_streams)

    def step_mtp(self, batch: StepBatch, streams: torch.Tensor) -> StepOutput:
        """Run the MTP block on the trunk's streams; `batch.token_ids` are shifted by one."""
        if "mtp" not in self._networks:
            raise no_mtp_block()
        return self._networks["mtp"].step(batch, want_streams=True, streams=streams)

    def warm_up(self, batch: StepBatch) -> None:
        """Load and capture the kernels of a batch that is nothing but padding."""
        self._networks["trunk"].warm_up(batch)

    def copy_pages(self, bucket: Bucket, sources: IntArray, targets: IntArray) -> None:
        """Copy whole pages of a bucket, `sources [n]` onto `targets [n]`, before the next step."""
        slab = self.slabs[bucket]
        source, target = (
            torch.from_numpy(ids).long().to(slab.device) for ids in (sources, targets)
        )
        slab[target] = slab[source]

    def _constants(self, graph: Graph) -> dict[str, Placed]:
        """Weights and pools: what stays where it is from step to step."""
        placed = {v.name: self.weights.placed[v.name] for v in graph.of_kind(ValueKind.WEIGHT)}
        for value in graph.of_kind(ValueKind.KV):
            slab = self.slabs[pool_bucket(value)]
            shape = (slab.shape[0], slab.shape[1])
            placed[value.name] = Placed.dense(slab.data_ptr(), DType.I8, shape)
        return placed
