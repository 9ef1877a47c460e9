"""The engine of plans on the host: the native engine's logits, bit for bit, whatever came before a step."""

import pytest
import torch

pytest.importorskip("cuda.bindings")
from dsv4_trt.errors import CapacityError, EngineFault
from dsv4_trt.kv_plan import plan_for_sequences
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.native import NativeEngine
from dsv4_trt.runtime.stepper import Chunk, Stepper
from dsv4_trt.runtime.weights import wanted_weights
from dsv4_trt.step_ladders import step_ladders
from tests.runtime.tensorrt.host import Host
from tests.runtime.tensorrt.plans import plan_bundle
from tests.workshop import logits, random_ids


@pytest.fixture(scope="module")
def native(native_dir):
    """The engine on a CPU; the same bits need the same shapes, and weights that lie as even in memory."""
    bundle = open_bundle(native_dir)
    engine = NativeEngine(bundle, plan_for_sequences(bundle.layout, [300] * 4))
    engine.ladders = step_ladders(bundle.build)
    for name in wanted_weights(bundle.graphs):
        engine._ranks[0][name] = engine._ranks[0][name].clone()
    return engine


def story(stepper):
    """Prompts, decodes of each rung, decodes beside a prompt, and logits of all positions."""
    rows = [stepper.kv.open() for _ in range(4)]

    def decode(count, seed):
        ids = random_ids(count, seed=seed)
        return [Chunk(row=r, token_ids=[i]) for r, i in zip(rows, ids, strict=False)]

    def prompt(row, length, **kwargs):
        return Chunk(row=rows[row], token_ids=random_ids(length, seed=length), **kwargs)

    steps = [
        [prompt(0, 40), prompt(1, 7)],
        decode(1, 1),
        decode(1, 2),
        decode(2, 3),
        decode(2, 4),
        [*decode(2, 5), prompt(2, 90), prompt(3, 1)],
        decode(4, 6),
        [*decode(1, 6), prompt(1, 2)],  # few tokens, but no decode step
        [*decode(3, 7), prompt(3, 30, all_logits=True)],
        decode(4, 8),
        decode(3, 9),
        decode(1, 10),
    ]
    return [stepper.step(chunks).logits for chunks in steps]


@pytest.fixture(scope="module")
def expected(native):
    return story(Stepper(native))


def assert_same_bits(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.isfinite().all()
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("kind", "graphs"), [("tensorrt", True), ("tensorrt", False), ("tensorrt-rtx", True)]
)
def test_logits_are_the_native_engine_s(native_dir, expected, tmp_path, monkeypatch, kind, graphs):
    host = Host(monkeypatch, kind)
    engine = host.open(plan_bundle(native_dir, tmp_path / "engine", kind), use_cuda_graphs=graphs)
    assert_same_bits(story(Stepper(engine)), expected)
    assert (host.gpu.num_replays > 0) == graphs


def test_the_mtp_block_has_a_plan_of_its_own(plan_dir, native, host):
    ids = random_ids(60, seed=3)
    engine = host.open(plan_dir)
    found, expected = (
        logits(e, ids[:50], decode=ids[50:], chunk=30, mtp=True) for e in (engine, native)
    )
    assert {*found} == {"prefill", "decode", "mtp", "mtp_decode"}
    assert_same_bits(found.values(), expected.values())


def test_warmed_up_it_only_replays_decodes(plan_dir, expected, host):
    engine = host.open(plan_dir)
    stepper = Stepper(engine)
    assert list(stepper.warm_up()) == [4, 2, 1]
    before = len(host.trt.contexts)
    assert_same_bits(story(stepper), expected)
    # one for other steps of each profile
    assert len(host.trt.contexts) == before + 2


def test_a_context_for_each_size_of_decode_and_each_profile(plan_dir, host):
    engine = host.open(plan_dir)
    story(Stepper(engine))
    contexts = host.trt.contexts
    profiles = sorted(context._profile for context in contexts)
    assert profiles == [0, 0, 0, 0, 1]  # decodes of 1, 2 and 4, small mixed steps, prompts
    # activations of all are in one place
    assert len({context._memory for context in contexts}) == 1
    weights = [name for name in engine.weights.placed if name != "embed.row_offset"]
    pools = [name for name in contexts[0]._addresses if name.startswith("kv.")]
    assert pools
    for context in contexts:
        assert context.calls["set_optimization_profile_async", context._profile] == 1
        for name in (*weights, *pools):
            trunk = name in context._engine._tensors
            assert context.calls.get(("set_tensor_address", name), 0) == trunk, name


def test_new_tables_are_found_and_weights_stay(plan_dir, expected, host):
    """A second stepper has wider tables; captured graphs have the first one's."""
    engine = host.open(plan_dir)
    for tails in (1, 2):
        assert_same_bits(story(Stepper(engine, tails_per_step=tails)), expected)
    for context in host.trt.contexts:
        assert context.calls["set_input_shape", "block_table.swa"] == 2
        assert context.calls["set_input_shape", "kv.swa.0"] == 1
        assert context.calls["set_tensor_address", "norm.weight"] == 1


def test_memory_that_moves_is_found(plan_dir, native, host):
    """Another network takes more of the arena than plans have asked for."""
    engine = host.open(plan_dir)
    stepper = Stepper(engine)
    rows = [stepper.kv.open()]
    stepper.step([Chunk(row=rows[0], token_ids=random_ids(10))])
    stepper.step([Chunk(row=rows[0], token_ids=[3])])
    arena = engine._networks["trunk"]._arena
    arena.reserve(arena._bytes.numel() + 4096)
    found = [stepper.step([Chunk(row=rows[0], token_ids=[4 + i])]).logits for i in range(2)]
    reference = Stepper(native)
    row = reference.kv.open()
    reference.step([Chunk(row=row, token_ids=random_ids(10))])
    for i in range(3):
        expected = reference.step([Chunk(row=row, token_ids=[3 + i])]).logits
    assert torch.equal(found[1], expected)


def test_copied_pages_are_what_the_next_step_reads(plan_dir, host):
    engine = host.open(plan_dir)
    stepper = Stepper(engine)
    row = stepper.kv.open()
    stepper.step([Chunk(row=row, token_ids=random_ids(70))])
    new, copies = stepper.kv.fork(row)
    for bucket, sources, targets in copies:
        engine.copy_pages(bucket, sources, targets)
    one, other = (stepper.step([Chunk(row=r, token_ids=[9])]).logits for r in (row, new))
    assert torch.equal(one, other)


def test_a_run_that_fails_says_what_tensorrt_said_and_leaves_no_trace(plan_dir, native, host):
    engine = host.open(plan_dir)
    stepper, reference = Stepper(engine), Stepper(native)
    rows = [s.kv.open() for s in (stepper, reference)]
    host.trt.fails_to_run = "Cuda Runtime (an illegal memory access)"
    with pytest.raises(EngineFault, match=r"can not run a step of graph 'trunk': .*illegal memory"):
        stepper.step([Chunk(row=rows[0], token_ids=random_ids(20))])
    host.trt.fails_to_run = ""
    found, expected = (
        s.step([Chunk(row=row, token_ids=random_ids(20))]).logits
        for s, row in zip((stepper, reference), rows, strict=True)
    )
    assert torch.equal(found, expected)


def test_no_memory_for_a_context_is_said(plan_dir, host):
    engine = host.open(plan_dir)
    host.trt.is_out_of_memory = True
    stepper = Stepper(engine)
    with pytest.raises(EngineFault, match=r"make an execution context .*Out of memory"):
        stepper.step([Chunk(row=stepper.kv.open(), token_ids=[1])])


def test_pools_larger_than_a_plan_takes_are_refused(plan_dir, host, monkeypatch):
    engine = host.open(plan_dir)
    program = engine._networks["trunk"]._program
    name = "kv.swa.0"
    placed = engine._constants(engine._networks["trunk"].graph)[name]
    bytes_of = placed.shape[1]
    huge = type(placed).dense(placed.address, placed.dtype, (1 << 30, bytes_of))
    with pytest.raises(CapacityError, match=r"num_pages.large is 1,073,741,824, .* smaller pools"):
        program.bind({name: huge})
