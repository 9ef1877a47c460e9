"""A graph's launches at one size after another: shapes, addresses, events; what its largest step takes."""

from dataclasses import replace
from itertools import pairwise
from math import prod

import pytest

from dsv4_trt.graph import ValueKind
from dsv4_trt.plugins.library import DTYPE_CODES, Call
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.cuda.footprint import footprint, native_arena_bytes
from dsv4_trt.runtime.cuda.memory import ALIGNMENT
from dsv4_trt.runtime.cuda.placed import Placed
from dsv4_trt.runtime.cuda.program import Program
from dsv4_trt.runtime.cuda.schedule import schedule
from dsv4_trt.runtime.cuda.step_size import StepSize
from tests.workshop import run_cli

BASE = 1 << 40
WORKSPACE = 5000
MOST = StepSize(num_tokens=40, num_seqs=8, num_decodes=8, num_logits=8)
MIXED = StepSize(num_tokens=5, num_seqs=3, num_decodes=2, num_logits=3)
SIZES = [MIXED, MOST, StepSize(1, 1, 1, 1), StepSize(40, 1, 0, 40), StepSize(7, 2, 0, 0)]


class NoLibrary:
    """Calls that nobody runs."""

    def call(self, op, attrs, tensors, start):
        return Call(self, op, [*OPS].index(op.name), attrs, tensors, start)

    def workspaces(self, launches):
        for launch in launches:
            launch.workspace_bytes = WORKSPACE


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("dummy") / "engine"
    run_cli("build", "--preset", "tiny", "--dummy-weights", "--output_dir", path)
    return open_bundle(path)


def fixed_and_moving(graph):
    """Where weights, pools and tables are, and addresses of the inputs and outputs of a step."""
    outputs = set(graph.outputs.values())
    fixed, moving = {}, {}
    for number, value in enumerate(graph.values.values(), 1):
        is_table = value.name.startswith("block_table.")
        if value.kind in (ValueKind.WEIGHT, ValueKind.KV) or is_table:
            shape = tuple(dim if isinstance(dim, int) else 7 for dim in value.shape)
            fixed[value.name] = Placed.dense(number << 20, value.dtype, shape)
        elif value.kind is ValueKind.INPUT or value.name in outputs:
            moving[value.name] = number << 20
    return fixed, moving


def set_size(program, size, base=BASE):
    """A step of a size; returns where everything outside the arena is, and the bytes of the arena."""
    fixed, moving = fixed_and_moving(program.graph)
    program.bind(fixed)
    nbytes = program.resize(size)
    program.place(base, moving)
    return moving | {name: placed.address for name, placed in fixed.items()}, nbytes


@pytest.fixture
def program(bundle):
    graph = bundle.trunk
    return Program(graph, schedule(graph), NoLibrary(), MOST)


def test_a_reader_gets_what_its_writer_wrote_at_every_size(program):
    for size in SIZES:
        check(program, size)


def check(program, size):
    """At this size all arguments have the shapes of their values, and addresses that nodes agree on."""
    outside, nbytes = set_size(program, size)
    sizes, written = size.by_name(), {}

    def check_arg(arg, value):
        assert arg.dtype == DTYPE_CODES[value.dtype]
        assert arg.rank == len(value.shape)
        first = value.shape[0]
        assert arg.shape[0] == sizes.get(first, first if isinstance(first, int) else 7)
        inner = [dim if isinstance(dim, int) else 7 for dim in value.shape[1:]]
        assert list(arg.shape[1 : arg.rank]) == inner
        assert list(arg.stride[: arg.rank]) == [
            prod(inner[axis:]) for axis in range(len(value.shape))
        ]

    for node, call in zip(program.graph.nodes, program.calls, strict=True):
        for param, name in node.inputs.items():
            assert call.inputs[param].data == (written[name] if name in written else outside[name])
            check_arg(call.inputs[param], program.graph.values[name])
        for param, name in node.outputs.items():
            arg = call.outputs[param]
            if param in node.aliases:
                assert arg.data == call.inputs[node.aliases[param]].data
            elif name in outside:
                assert arg.data == outside[name]
            else:
                count = prod(arg.shape[: arg.rank]) * program.graph.values[name].dtype.itemsize
                assert BASE <= arg.data <= BASE + nbytes - count
            check_arg(arg, program.graph.values[name])
            written[name] = arg.data


@pytest.mark.parametrize("size", [MOST, MOST._replace(num_logits=MOST.num_tokens)])
def test_nothing_is_written_over_while_it_is_needed(program, size):
    """In the order of the launches, no activation lies on one that a later node reads."""
    set_size(program, size)
    last = {}
    for index, node in enumerate(program.graph.nodes):
        last |= dict.fromkeys(node.inputs.values(), index)
    live = {}  # start: end, last reader
    for index, (node, call) in enumerate(zip(program.graph.nodes, program.calls, strict=True)):
        live = {start: (end, until) for start, (end, until) in live.items() if until >= index}
        for param, name in node.outputs.items():
            arg = call.outputs[param]
            if param in node.aliases or arg.data < BASE:
                continue
            size = prod(arg.shape[: arg.rank]) * program.graph.values[name].dtype.itemsize
            end = arg.data + size
            assert all(end <= start or other <= arg.data for start, (other, _) in live.items())
            live[arg.data] = end, last[name]


def test_activations_take_the_places_of_those_that_nobody_needs(program):
    set_size(program, MOST)
    activations = [
        arg.data for call in program.calls for arg in call.outputs.values() if arg.data >= BASE
    ]
    assert len({*activations}) < len(activations) / 2


def test_the_arena_and_inputs_move(program):
    set_size(program, MIXED)
    before = [arg.data for call in program.calls for arg in call.outputs.values()]
    set_size(program, MIXED, base=BASE + 4096)
    after = [arg.data for call in program.calls for arg in call.outputs.values()]
    assert {b - a for a, b in zip(before, after, strict=True)} == {0, 4096}


def test_absent_tensors_have_rank_0(program):
    set_size(program, MIXED)
    for node, call in zip(program.graph.nodes, program.calls, strict=True):
        for param, arg in call.inputs.items():
            assert (arg.rank > 0) == (param in node.inputs)


def test_launches_carry_streams_events_and_workspaces(program):
    _, nbytes = set_size(program, MIXED)
    activations = [
        arg.data for call in program.calls for arg in call.outputs.values() if arg.data >= BASE
    ]
    recorded, spaces = {}, {}
    pairs = zip(program.launches, program.placements, strict=True)
    for index, (launch, placement) in enumerate(pairs):
        assert launch.stream == placement.stream
        assert launch.workspace_bytes == WORKSPACE
        assert max(activations) < launch.workspace <= BASE + nbytes - WORKSPACE
        assert spaces.setdefault(launch.stream, launch.workspace) == launch.workspace
        assert launch.workspace % ALIGNMENT == 0
        assert [recorded[e] for e in launch.waits[: launch.num_waits]] == placement.waits
        if launch.record >= 0:
            recorded[launch.record] = index
    assert len(recorded) == sum(p.recorded for p in program.placements)
    ordered = sorted(spaces.values())
    assert all(after - before >= WORKSPACE for before, after in pairwise(ordered))


def test_launches_without_a_workspace_get_none(program, monkeypatch):
    def workspaces(launches):
        for index, launch in enumerate(launches):
            launch.workspace_bytes = index % 2 * WORKSPACE

    monkeypatch.setattr(program.library, "workspaces", workspaces)
    set_size(program, MIXED)
    assert [bool(launch.workspace) for launch in program.launches][:4] == [False, True] * 2


def test_no_step_takes_more_than_is_said_of_all(bundle, program, monkeypatch):
    """Also one that is the largest of all for each stream, but each for another of its sizes."""

    def workspaces(launches):
        for launch, call, node in zip(launches, program.calls, program.graph.nodes, strict=True):
            if node.op == "sparse_attention":  # few decodes are split among many blocks
                launch.workspace_bytes = (call.inputs["decode_carrier"].shape[0] == 2) << 20
            if node.op == "shared_expert":
                launch.workspace_bytes = call.inputs["x"].shape[0] << 10

    monkeypatch.setattr(program.library, "workspaces", workspaces)
    build = replace(bundle.build, max_batch_size=MOST.num_seqs, max_num_tokens=MOST.num_tokens)
    most = program.most_bytes(build)
    assert program.resize(MOST._replace(num_decodes=2)) <= most


def test_a_value_s_place_follows_the_size(program):
    logits = program.graph.outputs["logits"]
    for size in SIZES:
        outside, _ = set_size(program, size)
        found = program.tensor(logits)
        assert found.address == outside[logits]
        assert found.shape == (size.num_logits, *program.graph.values[logits].shape[1:])


def test_the_footprint_grows_with_the_largest_step(bundle):
    small = replace(bundle, build=replace(bundle.build, max_num_tokens=512))
    sizes = [footprint(b, native_arena_bytes(b, NoLibrary(), 1), 1) for b in (small, bundle)]
    hidden = bundle.spec.hidden_size * bundle.spec.hc_mult * 2
    assert sizes[1] - sizes[0] > (bundle.build.max_num_tokens - 512) * hidden
