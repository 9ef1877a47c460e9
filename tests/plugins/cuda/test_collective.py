"""Collectives on a GPU: NCCL's own of one rank, several ranks of which others are made up, and two GPUs."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from dsv4_trt.plugins.communicator import Communicator, new_unique_id
from dsv4_trt.plugins.cuda_ops import bind
from dsv4_trt.plugins.reference import REFERENCES
from tests.plugins.cuda.cuda_call import POISON, assert_same_bytes, kernels, library
from tests.plugins.fake_nccl import FakeNccl, device_memory

pytestmark = pytest.mark.gpu
FLOATS = {"F32": torch.float32, "BF16": torch.bfloat16}
REDUCED = [(0, 64), (1, 7), (1, 7168), (3, 64), (33, 255), (130, 7168)]
GATHERED = [(0, 16), (1, 16160), (3, 1), (5, 33), (64, 16160)]
TIMEOUT = 120  # seconds for two processes


def tensors(count, shape, dtype="F32"):
    """What each rank has, on the CPU: also what is no number, or too large for a sum."""
    generator = torch.Generator().manual_seed(0)
    ranks = [torch.randn(shape, generator=generator) for _ in range(count)]
    odd = torch.tensor([torch.inf, torch.nan, -0.0, 3e38])
    for rank, part in enumerate(ranks):
        some = odd[: part.numel()] * (1 - 2 * (rank % 2))
        part.flatten()[: some.numel()] = some
    return [part.to(FLOATS[dtype]) for part in ranks]


def fake(ranks, rank):
    """Other ranks' tensors on the device too: what it does can be captured."""
    ranks = [part.cuda() for part in ranks]
    return FakeNccl(ranks, rank, memory=device_memory).given_to(library())


@contextmanager
def alone():
    """NCCL's communicator of one rank."""
    with Communicator(library(), 0, 0, 1, new_unique_id()):
        yield
        torch.cuda.synchronize()


def assert_same(found, expected):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    found = found.cpu()
    assert torch.equal(found.isnan(), expected.isnan())
    assert_same_bytes(found.nan_to_num(5.0), expected.nan_to_num(5.0))


def assert_op(op, ranks, rank, **attrs):
    """One rank's call on poisoned memory gives what the reference gives all ranks."""
    x = ranks[rank].cuda()
    torch.cuda.synchronize()
    found = kernels()[op](x=x, **attrs)["out"]
    torch.cuda.synchronize()
    assert_same(found, REFERENCES[op](x=ranks, **attrs)["out"][rank])
    assert_same(x, ranks[rank])


@pytest.mark.parametrize("out_dtype", FLOATS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", REDUCED)
def test_all_reduce(shape, dtype, out_dtype):
    for world_size, rank in ((2, 0), (2, 1), (4, 2)):
        ranks = tensors(world_size, shape, dtype)
        with fake(ranks, rank):
            assert_op("all_reduce", ranks, rank, out_dtype=out_dtype)


@pytest.mark.parametrize("shape", GATHERED)
def test_all_gather(shape):
    for world_size, rank in ((2, 0), (2, 1), (8, 5)):
        ranks = tensors(world_size, shape)
        with fake(ranks, rank):
            assert_op("all_gather", ranks, rank, world_size=world_size)


def test_nccl_s_own_of_one_rank():
    with alone():
        for shape in REDUCED:
            for dtype in FLOATS:
                for out_dtype in FLOATS:
                    ranks = tensors(1, shape, dtype)
                    assert_op("all_reduce", ranks, 0, out_dtype=out_dtype)
        for shape in GATHERED:
            assert_op("all_gather", tensors(1, shape), 0, world_size=1)


@pytest.mark.parametrize(
    ("op", "attrs", "dtype"),
    [
        ("all_reduce", {"out_dtype": "BF16"}, "BF16"),
        ("all_reduce", {"out_dtype": "BF16"}, "F32"),
        ("all_reduce", {"out_dtype": "F32"}, "F32"),
        ("all_gather", {"world_size": 1}, "F32"),
    ],
)
def test_nccl_s_own_in_a_captured_graph(op, attrs, dtype):
    before, after = tensors(2, (33, 255), dtype)
    x = before.cuda()
    with alone():
        bound = bind(library(), op, poison=True, x=x, **attrs)
        bound.launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            bound.launch()
        x.copy_(after)
        for tensor in (bound.outputs["out"], bound.workspace):
            tensor.view(torch.int8).fill_(POISON)
        graph.replay()
        torch.cuda.synchronize()
        assert_same(bound.outputs["out"], REFERENCES[op](x=[after], **attrs)["out"][0])
        graph.reset()


def test_work_goes_on_the_stream_that_is_named():
    """Behind what is on it already; the default stream is not waited for."""
    ranks = tensors(2, (130, 7168), "BF16")
    x = torch.zeros(ranks[0].shape, dtype=torch.bfloat16, device="cuda")
    source = ranks[0].cuda()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with fake(ranks, 0), torch.cuda.stream(stream):
        bound = bind(library(), "all_reduce", poison=True, x=x, out_dtype="BF16")
        torch.cuda._sleep(20_000_000)
        x.copy_(source)
        bound.launch()
        stream.synchronize()
        assert_same(
            bound.outputs["out"], REFERENCES["all_reduce"](x=ranks, out_dtype="BF16")["out"][0]
        )


@pytest.mark.parametrize("out_dtype", FLOATS)
def test_an_input_at_an_odd_address(out_dtype):
    ranks = tensors(2, (3, 64), "BF16")
    x = torch.empty(3 * 64 + 1, dtype=torch.bfloat16, device="cuda")[1:].view(3, 64)
    x.copy_(ranks[0])
    with fake(ranks, 0):
        found = kernels()["all_reduce"](x=x, out_dtype=out_dtype)["out"]
    assert_same(found, REFERENCES["all_reduce"](x=ranks, out_dtype=out_dtype)["out"][0])


def test_all_gather_beyond_4_gib_and_of_more_rows_than_a_grid_has():
    rows, cols = 66_000, 16_400
    x = torch.arange(rows, device="cuda").float()[:, None] + torch.zeros(cols, device="cuda")
    other = -x
    with fake([x, other], 0):
        out = kernels()["all_gather"](x=x, world_size=2)["out"]
    assert torch.equal(out[:, :cols], x)
    assert torch.equal(out[:, cols:], other)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices")
def test_two_gpus():
    """A process for each; what they do and compare is in `collective_rank.py`."""
    unique_id = new_unique_id().hex()
    command = [sys.executable, "-m", "tests.plugins.cuda.collective_rank", unique_id]
    root = Path(__file__).parents[3]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), "2"],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=TIMEOUT)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(outputs)
    assert [output.splitlines()[-1] for output in outputs] == ["22 calls are right"] * 2
