"""Collectives as the library launches them, on a made-up NCCL; the GPU is the host's memory."""

import pytest
import torch

from dsv4_trt.dtypes import DType
from dsv4_trt.errors import PluginError
from dsv4_trt.plugins.cuda_ops import bind
from dsv4_trt.plugins.library import set_tensor
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.reference import REFERENCES
from tests.plugins.fake_nccl import FakeNccl

FLOATS = {"F32": torch.float32, "BF16": torch.bfloat16}


@pytest.fixture(scope="module")
def library(collective_library):
    return collective_library


def tensors(count, shape, dtype="F32"):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(FLOATS[dtype]) for _ in range(count)]


def launch(library, op, **arguments):
    """Outputs, and the call, after one launch; what was not written is NaN."""
    bound = bind(library, op, poison=True, **arguments)
    library.launch(bound.call, bound.workspace.data_ptr(), bound.workspace.numel(), 0)
    return bound


@pytest.mark.parametrize("out_dtype", FLOATS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(0, 64), (1, 7), (3, 64), (5, 33)])
@pytest.mark.parametrize(("world_size", "rank"), [(1, 0), (2, 1), (3, 0)])
def test_all_reduce(library, world_size, rank, shape, dtype, out_dtype):
    ranks = tensors(world_size, shape, dtype)
    kept = ranks[rank].clone()
    with FakeNccl(ranks, rank).given_to(library) as nccl:
        bound = launch(library, "all_reduce", x=ranks[rank], out_dtype=out_dtype)
    expected = REFERENCES["all_reduce"](x=ranks, out_dtype=out_dtype)["out"][rank]
    assert torch.equal(bound.outputs["out"], expected)
    assert torch.equal(ranks[rank], kept)
    assert len(nccl.calls) == (1 if expected.numel() else 0)


@pytest.mark.parametrize("shape", [(0, 8), (1, 8), (3, 1), (4, 5)])
@pytest.mark.parametrize(("world_size", "rank"), [(1, 0), (2, 0), (2, 1), (5, 3)])
def test_all_gather(library, world_size, rank, shape):
    ranks = tensors(world_size, shape)
    with FakeNccl(ranks, rank).given_to(library) as nccl:
        bound = launch(library, "all_gather", x=ranks[rank], world_size=world_size)
    expected = REFERENCES["all_gather"](x=ranks, world_size=world_size)["out"][rank]
    assert torch.equal(bound.outputs["out"], expected)
    assert len(nccl.calls) == (1 if expected.numel() else 0)


def test_what_needs_no_change_goes_from_input_to_output(library):
    ranks = tensors(2, (3, 8))
    with FakeNccl(ranks).given_to(library) as nccl:
        for op, x, attrs in (
            ("all_reduce", ranks[0], {"out_dtype": "F32"}),
            ("all_gather", ranks[0][:1], {"world_size": 2}),
        ):
            nccl.ranks = [part[: len(x)] for part in ranks]
            bound = launch(library, op, x=x, **attrs)
            assert bound.workspace.numel() == 0
            addresses = x.data_ptr(), bound.outputs["out"].data_ptr()
            assert nccl.calls[-1] == (op, *addresses, x.numel())


@pytest.mark.parametrize(
    ("op", "attrs", "dtype", "nbytes"),
    [
        ("all_reduce", {"out_dtype": "BF16"}, "F32", 5 * 33 * 4),
        ("all_reduce", {"out_dtype": "BF16"}, "BF16", 5 * 33 * 4),
        ("all_reduce", {"out_dtype": "F32"}, "BF16", 0),
        ("all_gather", {"world_size": 1}, "F32", 0),
        ("all_gather", {"world_size": 3}, "F32", 3 * 5 * 33 * 4),
    ],
)
def test_workspace_follows_from_the_call_alone(library, op, attrs, dtype, nbytes):
    """So it needs no communicator."""
    (x,) = tensors(1, (5, 33), dtype)
    assert bind(library, op, x=x, **attrs).workspace.numel() == nbytes


CALLS = [("all_reduce", {"out_dtype": "BF16"}), ("all_gather", {"world_size": 2})]


@pytest.mark.parametrize(("op", "attrs"), CALLS)
def test_there_has_to_be_a_communicator_of_the_device(library, op, attrs):
    ranks = tensors(2, (2, 8))
    for rows in (0, 2):
        with pytest.raises(PluginError, match=f"op '{op}': this process has no communicator"):
            launch(library, op, x=ranks[0][:rows], **attrs)
    with (
        FakeNccl(ranks, device=1).given_to(library) as nccl,
        pytest.raises(PluginError, match=f"op '{op}': the current device is 0; expected 1"),
    ):
        launch(library, op, x=ranks[0], **attrs)
    assert not nccl.calls


def test_all_gather_refuses_another_world_size(library):
    ranks = tensors(3, (2, 8))
    message = "the communicator has 3 ranks; expected 2, the world_size"
    with FakeNccl(ranks).given_to(library) as nccl, pytest.raises(PluginError, match=message):
        launch(library, "all_gather", x=ranks[0], world_size=2)
    assert not nccl.calls


@pytest.mark.parametrize(("op", "attrs"), CALLS)
def test_what_nccl_says_is_the_message(library, op, attrs):
    ranks = tensors(2, (2, 8))
    with FakeNccl(ranks).given_to(library) as nccl:
        nccl.result = 6
        with pytest.raises(PluginError, match=r"nccl(AllReduce|AllGather): made to fail"):
            launch(library, op, x=ranks[0], **attrs)
        nccl.result = 0
        launch(library, op, x=ranks[0], **attrs)


GOOD = (DType.F32, (4, 8), (8, 1))


@pytest.mark.parametrize(
    ("x", "out", "message"),
    [
        (GOOD, (DType.F32, (3, 8), (8, 1)), r"'out' is \[3, 8\] in 2 .* expected \[4, 8\]"),
        (GOOD, (DType.F32, (4, 9), (9, 1)), r"'out' is \[4, 9\] in 2 .* expected \[4, 8\]"),
        (GOOD, (DType.F32, (4, 8), (1, 4)), "'out' has stride 4 in dimension 1; expected 1"),
        ((DType.F32, (4, 8), (16, 1)), GOOD, "'x' has stride 16 in dimension 0; expected 8"),
        ((DType.F32, (4,), (1,)), GOOD, "'x' is .* in 1 dimensions"),
        ((DType.I32, (4, 8), (8, 1)), GOOD, "expected fp32"),
        (GOOD, (DType.I8, (4, 8), (8, 1)), "expected fp32"),
    ],
)
@pytest.mark.parametrize(
    ("op", "attrs"), [("all_reduce", {"out_dtype": "F32"}), ("all_gather", {"world_size": 1})]
)
def test_wrong_tensors_are_refused(library, op, attrs, x, out, message):
    """As a caller in C might give them, who has not asked the table; nothing is read or written."""
    call = library.call(OPS[op], attrs)
    set_tensor(call.inputs["x"], 0, *x)
    set_tensor(call.outputs["out"], 0, *out)
    with FakeNccl([None]).given_to(library) as nccl, pytest.raises(PluginError, match=message):
        library.launch(call, 0, 1 << 20, 0)
    assert not nccl.calls


@pytest.mark.parametrize(("op", "attrs"), CALLS)
def test_too_little_workspace_is_refused(library, op, attrs):
    ranks = tensors(2, (4, 8))
    bound = bind(library, op, x=ranks[0], **attrs)
    address, nbytes = bound.workspace.data_ptr(), bound.workspace.numel()
    with FakeNccl(ranks).given_to(library) as nccl:
        with pytest.raises(PluginError, match=f"has {nbytes - 1} bytes; expected {nbytes}"):
            library.launch(bound.call, address, nbytes - 1, 0)
        assert not nccl.calls
        library.launch(bound.call, address, nbytes, 0)
        assert len(nccl.calls) == 1
