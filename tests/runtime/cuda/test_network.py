"""What a step that fails leaves behind: no address of freed memory, no work that still runs."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("cuda.bindings")
from dsv4_trt.runtime.cuda.network import Network, SharedArena


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
