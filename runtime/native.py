"""The native engine on a CPU: walks the graph and calls each op's reference. Needs no TensorRT, no GPU.

Several ranks run in one process, op by op in lock step, so that collectives are plain sums; each rank
has its own weights and its own KV slabs, as real ranks do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from dsv4_trt.contract import pool_bucket
from dsv4_trt.errors import ConfigError
from dsv4_trt.graph import Graph, Node, ValueKind
from dsv4_trt.kv_layout import Bucket
from dsv4_trt.kv_plan import KvPlan
from dsv4_trt.ladder import StepLadders
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.reference import REFERENCES
from dsv4_trt.runtime.batch import IntArray, StepBatch, StepOutput
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.engine import no_mtp_block
from dsv4_trt.runtime.graph_check import check_graph
from dsv4_trt.runtime.slabs import allocate_slabs
from dsv4_trt.runtime.weights import load_weights

Environment = dict[str, torch.Tensor]
OpFunction = Callable[..., Any]


class NativeEngine:
    """Runs a bundle's graphs through the references; see `runtime.engine.Engine`."""

    def __init__(self, bundle: Bundle, plan: KvPlan) -> None:
        self.device = torch.device("cpu")
        if bundle.is_dummy:
            raise ConfigError(
                f"the bundle {bundle.path} has no weights, an engine makes them up on its GPU: use "
                "--device cuda on a machine that has one, or a bundle that is built from a checkpoint"
            )
        bundle.check_layout(plan.layout)
        self.spec = bundle.spec
        self.build = bundle.build
        self.layout = plan.layout
        self.plan = plan
        self.ladders: StepLadders | None = None
        self.owner: object = None
        self._trunk = Walk(bundle.trunk, REFERENCES)
        self._mtp = Walk(bundle.mtp, REFERENCES) if bundle.mtp is not None else None
        self._ranks: list[Environment] = []
        self._slabs: list[dict[Bucket, torch.Tensor]] = []
        for file in bundle.rank_files:
            environment = load_weights(file, bundle.graphs, self.device)
            slabs = allocate_slabs(plan, self.device)
            environment |= _pools(bundle.graphs, slabs)
            self._ranks.append(environment)
            self._slabs.append(slabs)

    def step(self, batch: StepBatch, *, want_streams: bool = False) -> StepOutput:
        """Run the trunk; KV pages named by the batch are updated in place."""
        out = self._trunk.run(self._ranks, self._inputs(batch))
        streams = out["streams"] if want_streams else None
        return StepOutput(logits=out["logits"], streams=streams)

    def step_mtp(self, batch: StepBatch, streams: torch.Tensor) -> StepOutput:
        """Run the MTP block on the trunk's streams; `batch.token_ids` are shifted by one."""
        if self._mtp is None:
            raise no_mtp_block()
        inputs = self._inputs(batch) | {"streams": streams}
        return StepOutput(**self._mtp.run(self._ranks, inputs))

    def warm_up(self, batch: StepBatch) -> None:
        """Nothing is loaded late on a CPU."""

    def copy_pages(self, bucket: Bucket, sources: IntArray, targets: IntArray) -> None:
        """Copy whole pages of a bucket, `sources [n]` onto `targets [n]`, before the next step."""
        source, target = (
            torch.from_numpy(ids).long().to(self.device) for ids in (sources, targets)
        )
        for slabs in self._slabs:
            slabs[bucket][target] = slabs[bucket][source]

    def _inputs(self, batch: StepBatch) -> Environment:
        tables = {f"block_table.{c}": table for c, table in batch.block_tables.items()}
        arrays = batch.arrays() | tables
        inputs = {name: torch.from_numpy(a).to(self.device) for name, a in arrays.items()}
        carrier = torch.empty(batch.num_decodes, dtype=torch.int8, device=self.device)
        return inputs | {"decode_carrier": carrier}


class Walk:
    """A graph prepared for running by a library of op functions; last uses are known."""

    def __init__(self, graph: Graph, library: Mapping[str, OpFunction]) -> None:
        check_graph(graph)
        self._steps = [(node, library[node.op]) for node in graph.nodes]
        self._outputs = graph.outputs
        self._dead_after = _dead_after(graph)

    @torch.inference_mode()
    def run(self, ranks: list[Environment], inputs: Environment) -> Environment:
        """Run all nodes on all ranks; returns the first rank's outputs by role."""
        environments = [{**rank, **inputs} for rank in ranks]
        for (node, function), dead in zip(self._steps, self._dead_after, strict=True):
            _run_node(node, function, environments)
            for environment in environments:
                for name in dead:
                    del environment[name]
        return {role: environments[0][name] for role, name in self._outputs.items()}


def _run_node(node: Node, function: OpFunction, environments: list[Environment]) -> None:
    if OPS[node.op].collective:
        gathered = {p: [env[v] for env in environments] for p, v in node.inputs.items()}
        results = function(**gathered, **node.attrs)
        for rank, environment in enumerate(environments):
            for param, value in node.outputs.items():
                environment[value] = results[param][rank]
        return
    for environment in environments:
        arguments = {param: environment[value] for param, value in node.inputs.items()}
        results = function(**arguments, **node.attrs)
        for param, value in node.outputs.items():
            environment[value] = results[param]


def _dead_after(graph: Graph) -> list[list[str]]:
    """Activations that no later node reads, by node index."""
    last: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        for value in (*node.inputs.values(), *node.outputs.values()):
            if graph.values[value].kind is ValueKind.ACTIVATION:
                last[value] = index
    dead: list[list[str]] = [[] for _ in graph.nodes]
    for value, index in last.items():
        if value not in graph.outputs.values():
            dead[index].append(value)
    return dead


def _pools(graphs: list[Graph], slabs: dict[Bucket, torch.Tensor]) -> Environment:
    """Bind every layer's pool value to the slab of its bucket."""
    return {
        value.name: slabs[pool_bucket(value)]
        for graph in graphs
        for value in graph.of_kind(ValueKind.KV)
    }
