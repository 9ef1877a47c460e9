"""NCCL of several ranks in one process: what the other ranks send is known beforehand.

`memory` is `host_memory` or `device_memory`.
"""

import ctypes
from contextlib import contextmanager

import torch

from dsv4_trt.plugins.library import CommunicatorArg

POINTER = ctypes.c_void_p
ALL_REDUCE = ctypes.CFUNCTYPE(
    ctypes.c_int, POINTER, POINTER, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, POINTER, POINTER
)
ALL_GATHER = ctypes.CFUNCTYPE(
    ctypes.c_int, POINTER, POINTER, ctypes.c_size_t, ctypes.c_int, POINTER, POINTER
)
ERROR_STRING = ctypes.CFUNCTYPE(POINTER, ctypes.c_int)  # c_char_p can not be given back
MESSAGE = ctypes.create_string_buffer(b"made to fail")
COMM, FLOAT32, SUM = 0xC0, 7, 0  # nccl.h: ncclFloat32, ncclSum


@contextmanager
def host_memory(stream):
    """fp32 at host addresses."""

    def view(address, count):
        return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)

    yield view


@contextmanager
def device_memory(stream):
    """fp32 at device addresses, for work on a CUDA stream."""

    def view(address, count):
        return torch.as_tensor(_DeviceArray(address, count), device="cuda")

    stream = torch.cuda.ExternalStream(stream) if stream else torch.cuda.default_stream()
    with torch.cuda.stream(stream):
        yield view


class _DeviceArray:
    def __init__(self, address, count):
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (count,),
            "typestr": "<f4",
            "version": 2,
        }


class FakeNccl:
    """`ranks` are all ranks' tensors; that of `rank` itself is not looked at, but taken from the call."""

    def __init__(self, ranks, rank=0, device=0, memory=host_memory):
        self.ranks, self.rank, self.device = ranks, rank, device
        self.memory = memory
        self.calls = []
        self.result = 0
        self._functions = (
            ALL_REDUCE(self._all_reduce),
            ALL_GATHER(self._all_gather),
            ERROR_STRING(lambda result: ctypes.addressof(MESSAGE)),
        )

    def arg(self):
        """The struct for the library."""
        pointers = [ctypes.cast(function, POINTER) for function in self._functions]
        return CommunicatorArg(COMM, self.rank, len(self.ranks), self.device, 0, *pointers)

    @contextmanager
    def given_to(self, library):
        """The library's communicator, inside."""
        library.set_communicator(self.arg())
        try:
            yield self
        finally:
            library.clear_communicator()

    def _all_reduce(self, source, target, count, dtype, operation, comm, stream):
        self.calls.append(("all_reduce", source, target, count))
        if (dtype, operation, comm) != (FLOAT32, SUM, COMM):
            return 4
        with self.memory(stream) as view:
            parts = self._parts(view(source, count))
            total = parts[0].clone()
            for part in parts[1:]:
                total += part
            view(target, count).copy_(total)
        return self.result

    def _all_gather(self, source, target, count, dtype, comm, stream):
        self.calls.append(("all_gather", source, target, count))
        if (dtype, comm) != (FLOAT32, COMM):
            return 4
        with self.memory(stream) as view:
            gathered = view(target, count * len(self.ranks)).view(-1, count)
            for row, part in zip(gathered, self._parts(view(source, count)), strict=True):
                row.copy_(part)
        return self.result

    def _parts(self, own):
        parts = [part.to(own.device).float().flatten() for part in self.ranks]
        parts[self.rank] = own
        return parts
