"""Makes NCCL's communicator of a rank and gives it to the kernel library, whose collectives run on it.

NCCL is no dependency of the library: it is loaded here, through ctypes, when several ranks run.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from dsv4_trt.errors import PluginError
from dsv4_trt.plugins.library import CommunicatorArg, Library

UNIQUE_ID_BYTES = 128
_NCCL = "libnccl.so.2"


class _UniqueId(ctypes.Structure):
    """`ncclUniqueId`, which NCCL takes by value."""

    _fields_ = (("internal", ctypes.c_byte * UNIQUE_ID_BYTES),)


@cache
def load_nccl() -> ctypes.CDLL:
    """NCCL: the one that torch has loaded, else its wheel's, else the system's.

    `PluginError` if there is none.
    """
    errors = []
    for name, mode in _places():
        try:
            return _declare(ctypes.CDLL(name, mode=mode))
        except OSError as error:
            errors.append(str(error))
    raise PluginError(
        f"several ranks need NCCL, and {_NCCL} can not be loaded: {errors[-1]}; a torch for CUDA brings "
        "it, or install it with: pip install nvidia-nccl-cu13"
    )


def new_unique_id() -> bytes:
    """What the ranks of one group find each other by: one rank makes it, and lives until all have."""
    unique_id = _UniqueId()
    nccl = load_nccl()
    _check(nccl, nccl.ncclGetUniqueId(ctypes.byref(unique_id)), "ncclGetUniqueId")
    return bytes(unique_id)


class Communicator:
    """This process's rank among `world_size` processes, on which the library's collectives run.

    Making one waits until every rank makes its own, with the same `unique_id`. A process has one at a time.
    It is closed when all work on streams is done, and captured graphs and TensorRT contexts that run
    collectives are gone.

    Raises:
        PluginError: NCCL or the device is not there, NCCL fails, or the process has a communicator.
    """

    def __init__(
        self, library: Library, device: int, rank: int, world_size: int, unique_id: bytes
    ) -> None:
        if not 0 <= rank < world_size:
            raise PluginError(
                f"rank {rank} of {world_size} ranks; expected 0 or more, and less than their number"
            )
        if len(unique_id) != UNIQUE_ID_BYTES:
            raise PluginError(
                f"a unique id of {len(unique_id)} bytes; expected {UNIQUE_ID_BYTES}, from new_unique_id"
            )
        self._library = library
        self._nccl = load_nccl()
        self._comm = ctypes.c_void_p()
        group = (ctypes.byref(self._comm), world_size, _UniqueId.from_buffer_copy(unique_id), rank)
        with _on_device(device):
            status = self._nccl.ncclCommInitRank(*group)
        _check(self._nccl, status, f"ncclCommInitRank, rank {rank} of {world_size}")
        try:
            library.set_communicator(self._arg(device, rank, world_size))
        except PluginError:
            self._nccl.ncclCommAbort(self._comm)
            raise

    def close(self) -> None:
        """Take it from the library and end it; `PluginError`, and all stays, if something holds it."""
        self._end(self._nccl.ncclCommDestroy, "ncclCommDestroy")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self.close()
        else:  # other ranks may be waited for in vain
            self._end(self._nccl.ncclCommAbort, "ncclCommAbort")

    def _end(self, function: Any, name: str) -> None:
        if self._comm:
            self._library.clear_communicator()
            comm, self._comm = self._comm, ctypes.c_void_p()
            _check(self._nccl, function(comm), name)

    def _arg(self, device: int, rank: int, world_size: int) -> CommunicatorArg:
        names = ("ncclAllReduce", "ncclAllGather", "ncclGetErrorString")
        functions = [ctypes.cast(getattr(self._nccl, name), ctypes.c_void_p) for name in names]
        return CommunicatorArg(self._comm, rank, world_size, device, 0, *functions)


def _places() -> Iterator[tuple[str, int]]:
    """Names for dlopen in their order, with its mode."""
    yield _NCCL, os.RTLD_NOLOAD
    wheel = find_spec("nvidia.nccl") if find_spec("nvidia") else None
    for folder in (wheel and wheel.submodule_search_locations) or ():
        yield str(Path(folder, "lib", _NCCL)), ctypes.DEFAULT_MODE
    yield _NCCL, ctypes.DEFAULT_MODE


def _declare(nccl: ctypes.CDLL) -> ctypes.CDLL:
    number, pointer = ctypes.c_int, ctypes.c_void_p
    nccl.ncclCommInitRank.argtypes = (pointer, number, _UniqueId, number)
    nccl.ncclCommDestroy.argtypes = nccl.ncclCommAbort.argtypes = (pointer,)
    nccl.ncclGetErrorString.restype = ctypes.c_char_p
    return nccl


def _on_device(device: int) -> Any:
    """A context with the device as the current one, for which NCCL makes a communicator."""
    import torch

    count = torch.cuda.device_count()
    if not 0 <= device < count:
        raise PluginError(f"there is no CUDA device {device}: torch sees {count}")
    return torch.cuda.device(device)


def _check(nccl: ctypes.CDLL, status: int, what: str) -> None:
    if status:
        raise PluginError(f"{what}: {nccl.ncclGetErrorString(status).decode(errors='replace')}")
