"""Streams and memory of a graph on a GPU: whatever overlaps in time never shares bytes."""

from itertools import pairwise

import pytest

from dsv4_trt.builder.model.networks import mtp, trunk
from dsv4_trt.builder.network import Network
from dsv4_trt.graph import ValueKind
from dsv4_trt.kv_layout import solve
from dsv4_trt.mapping import Mapping
from dsv4_trt.precision import Precision
from dsv4_trt.presets import FLASH, TINY, cut_layers
from dsv4_trt.runtime.cuda.memory import ALIGNMENT, Arena
from dsv4_trt.runtime.cuda.schedule import schedule

GRAPHS = {
    "flash": (trunk, cut_layers(FLASH, 8)),
    "tiny": (trunk, TINY),
    "mtp": (mtp, TINY),
}


@pytest.fixture(params=GRAPHS)
def graph(request):
    build, spec = GRAPHS[request.param]
    precision = Precision.official()
    layout = solve(spec, precision.kv, precision.indexer, mtp=True)
    return build(Network("n", spec, Mapping(), precision, layout))


def happens_before(placements):
    """For each node the set of nodes that are sure to be done when it starts."""
    done, last = [], {}
    for index, placement in enumerate(placements):
        direct = [*placement.waits, *([last[placement.stream]] if placement.stream in last else [])]
        done.append(set(direct).union(*(done[i] for i in direct)))
        last[placement.stream] = index
    return done


def test_a_node_starts_after_what_it_reads(graph):
    placements = schedule(graph)
    before, producer = happens_before(placements), {}
    for index, node in enumerate(graph.nodes):
        for value in node.inputs.values():
            assert value not in producer or producer[value] in before[index]
        producer |= dict.fromkeys(node.outputs.values(), index)
    assert all(placements[i].recorded for p in placements for i in p.waits)
    assert len({p.stream for p in placements}) > 1


def test_the_last_node_comes_after_all_others(graph):
    placements = schedule(graph)
    assert happens_before(placements)[-1] == set(range(len(placements) - 1))


def test_branches_of_attention_run_side_by_side(graph):
    placements = schedule(graph)
    for node, placement in zip(graph.nodes, placements, strict=True):
        if node.op == "compress":
            assert placement.stream == (2 if node.attrs["hadamard"] else 1)
        if node.op in ("sparse_attention", "experts", "mhc_post_pre"):
            assert placement.stream == 0


@pytest.mark.parametrize("side_streams", [True, False])
def test_buffers_that_can_be_alive_together_share_nothing(graph, side_streams):
    """Two values share bytes only if all users of one are done before the first of the other starts."""
    placements = schedule(graph, side_streams=side_streams)
    arena, offsets, sizes, users = Arena(), {}, {}, {}
    for index, (node, placement) in enumerate(zip(graph.nodes, placements, strict=True)):
        arena.merge(placement.epoch)
        for value in node.outputs.values():
            if graph.values[value].kind is ValueKind.ACTIVATION and value not in offsets:
                sizes[value] = 1000 + 777 * (index % 13)
                offsets[value] = arena.take(sizes[value], placement.stream, placement.epoch)
        for value in (*node.inputs.values(), *node.outputs.values()):
            users.setdefault(value, []).append(index)
        for value, stream in placement.frees:
            arena.give_back(offsets[value], stream, placement.epoch)
    before = happens_before(placements)
    assert arena.size < sum(sizes.values())
    values = sorted(offsets, key=lambda v: users[v][0])
    for i, first in enumerate(values):
        for second in values[i + 1 :]:
            apart = (
                offsets[first] + sizes[first] <= offsets[second]
                or offsets[second] + sizes[second] <= offsets[first]
            )
            if not apart:
                start = users[second][0]
                assert all(user in before[start] for user in users[first]), (first, second)


def test_an_arena_merges_what_lies_side_by_side():
    arena = Arena()
    places = [arena.take(ALIGNMENT, 0, 0) for _ in range(4)]
    assert [b - a for a, b in pairwise(places)] == [ALIGNMENT] * 3
    for place in places[:3]:
        arena.give_back(place, 0, 0)
    arena.merge(1)
    assert arena.take(3 * ALIGNMENT, 1, 1) == places[0]
    assert arena.size == 4 * ALIGNMENT


def test_bytes_of_another_stream_wait_for_the_next_epoch():
    arena = Arena()
    arena.give_back(arena.take(100, 1, 0), 1, 0)
    assert arena.take(100, 0, 0) == ALIGNMENT
    assert arena.take(100, 1, 0) == 0
