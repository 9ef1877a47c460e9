"""Steps of a network one after another, on a GPU of the host's memory.

Whatever came before a step - captured graphs, memory that moved, other sizes, a step that failed - its
launches find the batch, the tables, constants, activations and outputs where they are now.
"""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("cuda.bindings")
from dsv4_trt.contract import BuildSpec
from dsv4_trt.errors import PluginError
from dsv4_trt.graph import ValueKind
from dsv4_trt.plugins.cuda_ops import TORCH_DTYPES
from dsv4_trt.runtime.batch import StepBatch
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.cuda.network import Network, SharedArena
from dsv4_trt.runtime.cuda.placed import Placed
from dsv4_trt.runtime.cuda.program import Program
from dsv4_trt.runtime.cuda.schedule import schedule
from dsv4_trt.runtime.cuda.step_size import largest_step
from tests.runtime.cuda.host_gpu import Machine
from tests.workshop import run_cli

BUILD = BuildSpec(max_batch_size=4, max_num_tokens=32, max_seq_len=256, mtp=False)
CPU = torch.device("cpu")


class Tables:
    """Block tables of all classes in one memory."""

    def __init__(self, model, seed, pages):
        self.random = np.random.default_rng(seed)
        sizes = [layers * BUILD.max_batch_size * pages for layers in model.layers.values()]
        self.ids = self.random.integers(0, 1000, sum(sizes), np.int32)
        parts = np.split(self.ids, np.cumsum(sizes)[:-1])
        self.views = {
            name: part.reshape(layers, BUILD.max_batch_size, pages)
            for (name, layers), part in zip(model.layers.items(), parts, strict=True)
        }

    def batch(self, tokens, seqs, decodes, logits):
        """A batch of these sizes, some places of the tables changed before it."""
        places = self.random.integers(0, self.ids.size, 3)
        self.ids[places] = self.random.integers(0, 1000, 3)

        def some(size):
            return self.random.integers(0, 1000, size, np.int32)

        return StepBatch(
            token_ids=some(tokens),
            positions=some(tokens),
            seq_ids=some(tokens),
            query_start=some(seqs + 1),
            seq_lens=some(seqs),
            table_rows=some(seqs),
            logits_rows=some(logits),
            num_decodes=decodes,
            block_tables=self.views,
            slot_mappings={name: some(tokens) for name in self.views},
            table_ids=self.ids,
            table_changes=places.astype(np.intp),
        )


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("dummy") / "engine"
    run_cli("build", "--preset", "tiny", "--dummy-weights", "--output_dir", path)
    return Model(open_bundle(path))


class Model:
    """What a network is made of; hypothesis prints it, and a bundle is long."""

    def __init__(self, bundle):
        self.graph = bundle.trunk
        classes = bundle.layout.classes.values()
        self.layers = {
            kv.cache_class: len(kv.layers) for kv in classes if "mtp" not in kv.cache_class
        }


def constants_of(graph):
    """Weights and pools at made-up addresses."""
    found = {}
    for number, value in enumerate(graph.values.values(), 1):
        if value.kind in (ValueKind.WEIGHT, ValueKind.KV):
            shape = tuple(dim if isinstance(dim, int) else 9 for dim in value.shape)
            found[value.name] = Placed.dense(number << 40, value.dtype, shape)
    return found


ONE, FOUR = (1, 1, 1, 1), (4, 4, 4, 4)  # decodes: tokens, sequences, decodes, rows of logits
MIXED, EVERY_LOGIT, NO_LOGITS = (16, 7, 4, 7), (32, 1, 0, 32), (8, 2, 0, 0)
SIZES = st.sampled_from([ONE, FOUR, MIXED, EVERY_LOGIT, NO_LOGITS])
STEP = st.tuples(st.just("step"), SIZES)
WARM = st.tuples(st.just("warm"), st.sampled_from([ONE, FOUR]))
FAIL = st.tuples(st.sampled_from(["workspaces", "scatter", "run"]), SIZES)
EVENT = st.tuples(st.sampled_from(["tables", "arena", "profile", "end profile"]), st.none())


@example([("step", FOUR), ("step", EVERY_LOGIT), ("step", FOUR)], True)
@example([("step", FOUR), ("step", ONE), ("profile", None), ("step", FOUR)], True)
@example([("warm", FOUR), ("scatter", FOUR), ("step", FOUR), ("run", ONE), ("step", MIXED)], True)
@example([("step", FOUR), ("arena", None), ("step", FOUR)], True)
@example([("step", FOUR), ("tables", None), ("workspaces", MIXED), ("step", FOUR)], True)
@given(st.lists(STEP | WARM | FAIL | EVENT, max_size=12), st.booleans())
@settings(max_examples=15, deadline=None)
def test_every_step_finds_its_own(model, events, graphs):
    with pytest.MonkeyPatch.context() as monkeypatch:
        graph = model.graph
        machine = Machine(graph, monkeypatch)
        constants = constants_of(graph)
        machine.constants = {n: (p.address, p.shape) for n, p in constants.items()}
        arena = SharedArena(CPU)
        program = Program(graph, schedule(graph), machine, largest_step(BUILD))
        program.bind(constants)
        network = Network(graph, program, machine, BUILD, arena, CPU, use_cuda_graphs=graphs)
        machine.network, machine.calls = network, program.calls
        follow(machine, model, events)


def follow(machine, model, events):
    network, tables = machine.network, Tables(model, 0, 5)
    for number, (event, sizes) in enumerate(events, 1):
        machine.stamp, machine.fails_at = number, event
        if event == "tables":
            tables = Tables(model, number, 6 - number % 2)
        elif event == "arena":  # another network needs more
            network._arena.reserve(network._arena._bytes.numel() + 4096)
        elif event == "profile":
            network.profiler = SimpleNamespace(run=partial(machine.profile, network._program))
        elif event == "end profile":
            network.profiler = None
        else:
            machine.batch = tables.batch(*sizes)
            run = network.warm_up if event == "warm" else step_of(machine)
            try:
                run(machine.batch)
            except PluginError:
                assert event in ("workspaces", "scatter", "run")
            assert not network.main.is_busy


def step_of(machine):
    def step(batch):
        output = machine.network.step(batch, want_streams=True)
        vocab = machine.graph.values[machine.graph.outputs["logits"]].shape[1]
        assert output.logits.shape == (batch.logits_rows.size, vocab)
        assert bool((output.logits == machine.stamp).all())
        assert output.streams.shape[0] == batch.token_ids.size
        assert output.streams.dtype == TORCH_DTYPES[machine.graph.values["streams"].dtype]

    return step
