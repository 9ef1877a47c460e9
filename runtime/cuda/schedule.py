"""Which stream each node of a graph runs on, which events order them, and how long buffers live.

Stream 0 is the main one. The branches of a layer that meet only in attention (main compression, indexer)
and the shared expert run beside it. A stretch between two points where all streams have met again is an
epoch: memory that one stream gives up may go to another one only in a later epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from dsv4_trt.graph import Graph, Node, ValueKind

NUM_STREAMS = 3
MANY = -1  # several streams
_SEEDS = {"index_topk": 2, "shared_expert": 1}  # ops that head a side stream


class Freed(NamedTuple):
    """An activation that no later node reads."""

    value: str
    stream: int  # the only one that used it in this epoch, or MANY


@dataclass(slots=True, kw_only=True)
class Placement:
    """How one node is ordered."""

    stream: int
    epoch: int
    waits: list[int] = field(default_factory=list)  # nodes on other streams that come before it
    recorded: bool = False  # whether another stream waits for it
    frees: list[Freed] = field(default_factory=list)


def schedule(graph: Graph, *, side_streams: bool = True) -> list[Placement]:
    """One placement for each node of the graph, in its order."""
    streams = _streams(graph) if side_streams else [0] * len(graph.nodes)
    placements: list[Placement] = []
    producer: dict[str, int] = {}
    unmet: set[int] = set()  # side streams that the main one has not waited for since they last ran
    epoch = fork = 0
    for index, (node, stream) in enumerate(zip(graph.nodes, streams, strict=True)):
        before = {producer[v] for v in node.inputs.values() if v in producer}
        if stream and stream not in unmet:
            before.add(fork)  # after everything of the last epoch
        waits = sorted(i for i in before if streams[i] != stream and i < index)
        placement = Placement(stream=stream, epoch=epoch, waits=_latest(waits, streams))
        for i in placement.waits:
            placements[i].recorded = True
        if stream:
            unmet.add(stream)
        else:
            met = {streams[i] for i in placement.waits}
            if unmet and unmet <= met:
                unmet.clear()
                epoch += 1
                placement.epoch = epoch
            if not unmet:
                fork = index
        placements.append(placement)
        producer |= dict.fromkeys(node.outputs.values(), index)
    _mark_last_uses(graph, placements)
    return placements


def _latest(nodes: list[int], streams: list[int]) -> list[int]:
    """Of several nodes of one stream the last is enough."""
    return sorted({streams[i]: i for i in nodes}.values())


def _streams(graph: Graph) -> list[int]:
    consumers: dict[str, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        for value in node.inputs.values():
            consumers.setdefault(value, []).append(index)
    streams = [0] * len(graph.nodes)
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        streams[index] = _seed(node) or _common_stream(node, consumers, streams)
    return streams


def _seed(node: Node) -> int:
    if node.op == "compress" and not node.attrs["hadamard"]:
        return 1
    return _SEEDS.get(node.op, 0)


def _common_stream(node: Node, consumers: dict[str, list[int]], streams: list[int]) -> int:
    """The side stream of all that read a node's outputs, if it is one."""
    readers = {streams[i] for v in node.outputs.values() for i in consumers.get(v, [])}
    return readers.pop() if len(readers) == 1 else 0


def _mark_last_uses(graph: Graph, placements: list[Placement]) -> None:
    uses: dict[str, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        for value in (*node.inputs.values(), *node.outputs.values()):
            if graph.values[value].kind is ValueKind.ACTIVATION:
                uses.setdefault(value, []).append(index)
    for value, nodes in uses.items():
        if value in graph.outputs.values():
            continue
        last = placements[nodes[-1]]
        streams = {p.stream for p in map(placements.__getitem__, nodes) if p.epoch == last.epoch}
        last.frees.append(Freed(value, streams.pop() if len(streams) == 1 else MANY))
