"""What a step that fails leaves behind: no address of freed memory, no work that still runs."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("cuda.bindings")
from dsv4_trt.dtypes import DType
from dsv4_trt.runtime.cuda.network import Network, SharedArena
from dsv4_trt.runtime.cuda.program import Placed


def test_memory_that_moves_has_another_version():
    arena = SharedArena(torch.device("cpu"))
    first = arena.reserve(4096)
    version = arena.version
    assert arena.reserve(100) == first
    assert arena.version == version
    arena.reserve(8192)
    assert arena.version > version


def test_memory_that_went_for_more_than_there_is_has_another_version():
    """Programs and graphs that point into it must not run again."""
    arena = SharedArena(torch.device("cpu"))
    arena.reserve(4096)
    version = arena.version
    with pytest.raises(RuntimeError, match="memory"):
        arena.reserve(1 << 60)
    assert arena.version > version
    arena.reserve(4096)


def test_the_largest_step_moves_nothing(monkeypatch):
    """What is reserved for it serves all steps up to it: no graph is captured again."""
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    network = Network.__new__(Network)
    network.main, network._device = None, torch.device("cpu")
    network._arena, network._buffers = SharedArena(network._device), {}
    network._graphs, network._programs = {}, {"a size": "its program"}
    network.graph = SimpleNamespace(
        outputs={"logits": "y"},
        values={"y": SimpleNamespace(dtype=DType.F32, shape=("num_logits", 7))},
        of_kind=lambda _: [],
    )
    shapes = {"y": Placed.dense(0, DType.F32, (4, 7))}
    network.reserve(SimpleNamespace(arena_bytes=4096, tensor=shapes.__getitem__))
    assert not network._programs
    network._programs = {"a size": "its program"}
    version, address = network._arena.version, network._buffers["y"].data_ptr()
    for count in (1, 4):
        placed = network._bind_buffer("y", {"num_logits": count})
        assert (placed.address, placed.shape) == (address, (count, 7))
    network._arena.reserve(4096)
    assert network._arena.version == version
    assert network._programs


def test_no_stream_runs_on_after_a_launch_that_failed():
    """Pages and buffers of a failed step go to others at once."""
    ended = []
    network = Network.__new__(Network)
    network._torch_streams = [
        SimpleNamespace(synchronize=lambda number=number: ended.append(number))
        for number in range(3)
    ]
    network._streams = network._events = None

    class Program:
        def run(self, streams, events):
            assert not ended
            raise ValueError("launch")

    with pytest.raises(ValueError, match="launch"):
        network._launch(Program())
    assert ended == [0, 1, 2]
