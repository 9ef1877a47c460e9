"""A graph's launches at fixed sizes: shapes, addresses, events; and what its largest step takes."""

import pytest

from dsv4_trt.graph import ValueKind
from dsv4_trt.plugins.library import DTYPE_CODES, Call
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.cuda.footprint import footprint
from dsv4_trt.runtime.cuda.program import Placed, Program
from dsv4_trt.runtime.cuda.schedule import schedule
from tests.workshop import run_cli

BASE = 1 << 40
WORKSPACE = 5000


class NoLibrary:
    """Calls that nobody runs."""

    def call(self, op, attrs):
        return Call(self, op, [*OPS].index(op.name), attrs)

    def workspace(self, call):
        return WORKSPACE


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("dummy") / "engine"
    run_cli("build", "--preset", "tiny", "--dummy-weights", "--output_dir", path)
    return open_bundle(path)


@pytest.fixture
def program(bundle):
    graph = bundle.trunk
    sizes = {"num_tokens": 5, "num_seqs": 3, "num_seqs_plus_1": 4, "num_logits": 3}
    sizes |= {"num_decodes": 2, "num_table_rows": 8}

    def size(dim):
        return dim if isinstance(dim, int) else sizes.get(dim, 7)

    outputs = set(graph.outputs.values())
    bound = {
        v.name: Placed.dense((number + 1) << 20, v.dtype, tuple(map(size, v.shape)))
        for number, v in enumerate(graph.values.values())
        if v.kind is not ValueKind.ACTIVATION or v.name in outputs
    }
    program = Program(graph, schedule(graph), NoLibrary(), sizes, bound)
    program.place(BASE)
    return program, bound


def test_a_reader_gets_what_its_writer_wrote(program):
    program, bound = program
    written = {}
    for node, call in zip(program.graph.nodes, program.calls, strict=True):
        for param, name in node.inputs.items():
            arg = call.inputs[param]
            assert arg.data == (written[name] if name in written else bound[name].address)
            assert arg.dtype == DTYPE_CODES[program.graph.values[name].dtype]
        for param, name in node.outputs.items():
            arg = call.outputs[param]
            if param in node.aliases:
                assert arg.data == call.inputs[node.aliases[param]].data
            elif name in bound:
                assert arg.data == bound[name].address
            else:
                assert BASE <= arg.data < BASE + program.arena_bytes
            shape = program.graph.values[name].shape
            assert arg.rank == len(shape)
            assert arg.shape[0] == (5 if shape[0] == "num_tokens" else arg.shape[0])
            written[name] = arg.data


def test_absent_tensors_have_rank_0(program):
    program, _ = program
    for node, call in zip(program.graph.nodes, program.calls, strict=True):
        for param, arg in call.inputs.items():
            assert (arg.rank > 0) == (param in node.inputs)


def test_launches_carry_streams_events_and_workspaces(program):
    program, _ = program
    recorded = {}
    pairs = zip(program.launches, program.placements, strict=True)
    for index, (launch, placement) in enumerate(pairs):
        assert launch.stream == placement.stream
        assert launch.workspace_bytes == WORKSPACE
        assert BASE <= launch.workspace <= BASE + program.arena_bytes - WORKSPACE
        assert [recorded[e] for e in launch.waits[: launch.num_waits]] == placement.waits
        if launch.record >= 0:
            recorded[launch.record] = index
    assert len(recorded) == sum(p.recorded for p in program.placements)


def test_the_footprint_grows_with_the_largest_step(bundle):
    from dataclasses import replace

    small = replace(bundle, build=replace(bundle.build, max_num_tokens=512))
    sizes = [footprint(b, NoLibrary(), 1) for b in (small, bundle)]
    hidden = bundle.spec.hidden_size * bundle.spec.hc_mult * 2
    assert sizes[1] - sizes[0] > (bundle.build.max_num_tokens - 512) * hidden
