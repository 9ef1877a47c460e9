"""A GPU's memory on the host: allocations lie at 256 bytes, begin as NaNs, are known while they live."""

import ctypes
import weakref
from bisect import bisect_right

import numpy as np
import torch

_ALIGNMENT = 256
_POISON = 0xFF  # NaN in every type that has one, -1 in the others

_torch_empty = torch.empty


class HostMemory:
    """`torch.empty` and what may be read or written through an address."""

    def __init__(self):
        self._sizes = {}  # of live allocations by where they begin
        self._ever = []  # no address is given twice

    def empty(self, *shape, dtype=torch.float32, device=None, pin_memory=False):
        shape = tuple(shape[0]) if shape and not isinstance(shape[0], int) else shape
        nbytes = int(np.prod(shape)) * _torch_empty(0, dtype=dtype).element_size()
        if not nbytes or (device is not None and torch.device(device).type != "cpu"):
            return _torch_empty(shape, dtype=dtype, device=device)
        raw = np.full(nbytes + _ALIGNMENT, _POISON, np.uint8)
        start = -raw.ctypes.data % _ALIGNMENT
        address = raw.ctypes.data + start
        self._sizes[address] = nbytes
        self._ever.append(raw)
        part = raw[start : start + nbytes]
        weakref.finalize(part, self._sizes.pop, address).atexit = False
        return torch.from_numpy(part).view(dtype).reshape(shape)

    def new_empty(self, tensor, *shape):
        """`tensor.new_empty(*shape)`."""
        return self.empty(*shape, dtype=tensor.dtype)

    def holds(self, address, nbytes):
        """Whether these bytes are in one live allocation."""
        starts = sorted(self._sizes)
        at = bisect_right(starts, address) - 1
        return at >= 0 and address + nbytes <= starts[at] + self._sizes[starts[at]]

    def at(self, address, dtype, shape):
        """The tensor at an address."""
        nbytes = int(np.prod(shape)) * _torch_empty(0, dtype=dtype).element_size()
        if not nbytes:
            return _torch_empty(shape, dtype=dtype)
        assert self.holds(address, nbytes), f"{nbytes} bytes at {address:#x} are nobody's"
        data = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
        return torch.from_numpy(data).view(dtype).reshape(shape)
