"""A network's memory: what graphs point to stays, and a step that fails leaves no work that still runs."""

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("cuda.bindings")
from dsv4_trt.contract import BuildSpec
from dsv4_trt.dtypes import DType
from dsv4_trt.runtime.cuda import driver
from dsv4_trt.runtime.cuda.network import Network, SharedArena
from dsv4_trt.runtime.cuda.step_size import StepSize, step_sizes


def test_memory_that_moves_has_another_version():
    arena = SharedArena(torch.device("cpu"))
    first = arena.reserve(4096)
    version = arena.version
    assert arena.reserve(100) == first
    assert arena.version == version
    arena.reserve(8192)
    assert arena.version > version


def test_memory_that_went_for_more_than_there_is_has_another_version():
    """A program and graphs that point into it must not run again."""
    arena = SharedArena(torch.device("cpu"))
    arena.reserve(4096)
    version = arena.version
    with pytest.raises(RuntimeError, match="memory"):
        arena.reserve(1 << 60)
    assert arena.version > version
    arena.reserve(4096)


def test_no_step_moves_what_graphs_point_to(monkeypatch):
    """Room for the largest step is there from the first one on; more rows of logits take more."""
    monkeypatch.setattr(driver, "destroy_graph", lambda graph: None)
    network = Network.__new__(Network)
    network._build = BuildSpec(max_batch_size=4, max_num_tokens=64, max_seq_len=256, mtp=False)
    network.main = SimpleNamespace(synchronize=lambda: None)
    network._device, network.profiler = torch.device("cpu"), None
    network._arena, network._buffers = SharedArena(network._device), {}
    network._captured, network._version = {}, (-1, -1)
    network._tables = SimpleNamespace(version=1, placed={})
    network._program = SimpleNamespace(
        bind=lambda placed: None,
        resize=lambda size: 1000 * size.num_tokens,
        most_bytes=lambda build: 1000 * build.max_num_tokens,
    )
    network.graph = SimpleNamespace(
        outputs={"logits": "y"},
        values={"y": SimpleNamespace(name="y", dtype=DType.F32, shape=("num_logits", 7))},
        of_kind=lambda _: [],
    )
    network._make_room(StepSize(1, 1, 1, 1))
    network._captured = {"a size": "its graph"}
    before = network._base, network._buffers["y"].data_ptr()
    for size in step_sizes(network._build):
        network._make_room(size)
    assert (network._base, network._buffers["y"].data_ptr()) == before
    assert network._captured
    network._make_room(StepSize(64, 1, 0, 64))
    assert network._buffers["y"].numel() == 64 * 7
    assert not network._captured
    network._captured = {"a size": "its graph"}
    network._arena.reserve(1 << 20)  # by another network
    network._make_room(StepSize(1, 1, 1, 1))
    assert not network._captured


def test_no_stream_runs_on_after_an_error(monkeypatch):
    """Pages and buffers of a failed step go to others at once; a lost device hides nothing."""
    ended = []

    def synchronize(number):
        ended.append(number)
        raise RuntimeError("the device is lost")

    network = Network.__new__(Network)
    network._device = torch.device("cpu")
    network._torch_streams = [
        SimpleNamespace(synchronize=partial(synchronize, number), wait_stream=lambda _: None)
        for number in range(3)
    ]
    network.main = network._torch_streams[0]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    with pytest.raises(ValueError, match="launch"), network._on_main():
        raise ValueError("launch")
    assert ended == [0, 1, 2]
