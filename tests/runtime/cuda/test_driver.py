"""Events and graphs are freed with what they belong to."""

import gc

import pytest

pytest.importorskip("cuda.bindings")
from dsv4_trt.runtime.cuda import driver


class Owner:
    pass


def test_events_and_graphs_go_with_their_owner(monkeypatch):
    gone = []
    for name in ("cudaEventDestroy", "cudaGraphExecDestroy"):
        monkeypatch.setattr(
            driver.cudart, name, lambda handle, name=name: gone.append((name, handle))
        )
    owner, graphs = Owner(), {}
    driver.free_with(owner, [7, 8], graphs)
    graphs["captured later"] = 9
    gc.collect()
    assert gone == []
    del owner
    gc.collect()
    assert gone == [
        ("cudaGraphExecDestroy", 9),
        ("cudaEventDestroy", 7),
        ("cudaEventDestroy", 8),
    ]
