"""The calls of the CUDA runtime that the engine makes itself, through cuda-python."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from dsv4_trt.errors import EngineFault, MissingDependency

try:
    from cuda.bindings import runtime as cudart
except ImportError as error:
    raise MissingDependency("cuda-python", "cuda", "running on a GPU") from error


def new_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream that torch knows too, so that both can wait for each other."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def new_event(*, timing: bool = False) -> int:
    """A new event's handle; without timing it costs less to record."""
    flags = cudart.cudaEventDefault if timing else cudart.cudaEventDisableTiming
    return int(_call(cudart.cudaEventCreateWithFlags, flags))


def free_with(
    owner: object, events: Iterable[int], graphs: Mapping[Any, Any] | None = None
) -> None:
    """Free events, and graphs as they are by then, when nobody has `owner` any more.

    CUDA keeps what a launch still needs until it ends. At the end of the process everything goes anyway.
    """
    weakref.finalize(owner, _free, tuple(events), {} if graphs is None else graphs).atexit = False


def _free(events: tuple[int, ...], graphs: Mapping[Any, Any]) -> None:
    for executable in graphs.values():
        cudart.cudaGraphExecDestroy(executable)
    for event in events:
        cudart.cudaEventDestroy(event)


def record_event(event: int, stream: int) -> None:
    """Record an event on a stream."""
    _call(cudart.cudaEventRecord, event, stream)


def wait_for_event(event: int) -> None:
    """Block the host until an event has passed."""
    _call(cudart.cudaEventSynchronize, event)


def elapsed_us(begin: int, end: int) -> float:
    """Microseconds between two timing events that have passed."""
    return 1000.0 * float(_call(cudart.cudaEventElapsedTime, begin, end))


def copy_to_device(target: int, source: int, nbytes: int, stream: int) -> None:
    """Copy from pinned memory."""
    kind = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
    _call(cudart.cudaMemcpyAsync, target, source, nbytes, kind, stream)


def begin_capture(stream: int) -> None:
    """From here on, work on this stream and streams that wait for it is recorded, not run."""
    mode = cudart.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
    _call(cudart.cudaStreamBeginCapture, stream, mode)


def end_capture(stream: int) -> Any:
    """The executable graph of what was recorded."""
    graph = _call(cudart.cudaStreamEndCapture, stream)
    try:
        return _call(cudart.cudaGraphInstantiate, graph, 0)
    finally:
        _call(cudart.cudaGraphDestroy, graph)


def abandon_capture(stream: int) -> None:
    """Leave capture mode after an error; what was recorded is dropped."""
    error, graph = cudart.cudaStreamEndCapture(stream)
    if error == cudart.cudaError_t.cudaSuccess:
        cudart.cudaGraphDestroy(graph)


def launch_graph(executable: Any, stream: int) -> None:
    """Run a captured graph."""
    _call(cudart.cudaGraphLaunch, executable, stream)


def destroy_graph(executable: Any) -> None:
    """Free a captured graph."""
    _call(cudart.cudaGraphExecDestroy, executable)


def _call(function: Any, *arguments: Any) -> Any:
    error, *values = function(*arguments)
    if error != cudart.cudaError_t.cudaSuccess:
        _, name = cudart.cudaGetErrorName(error)
        _, text = cudart.cudaGetErrorString(error)
        raise EngineFault(f"{function.__name__}: {name.decode()}, {text.decode()}")
    return values[0] if values else None
