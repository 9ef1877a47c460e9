"""A step's arrays on the device: packed into pinned memory and copied at once.

Where an array lies depends on the step's sizes alone, so that a captured graph finds it again. Two pinned
buffers take turns: one is filled while the copy from the other may still be under way.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from dsv4_trt.runtime.batch import IntArray
from dsv4_trt.runtime.cuda import driver

_ALIGNMENT = 64  # elements


class StepInputs:
    """The device buffer of one network's small int32 inputs, and of what changed in its block tables."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.capacity = capacity  # elements
        self._device = torch.zeros(capacity, dtype=torch.int32, device=device)
        self._pinned = [torch.zeros(capacity, dtype=torch.int32, pin_memory=True) for _ in range(2)]
        self._hosts: list[IntArray] = [buffer.numpy() for buffer in self._pinned]
        self._copied = [driver.new_event() for _ in range(2)]
        driver.free_with(self, self._copied)
        self._turn = 0

    def address(self, offset: int) -> int:
        """Device address of an element."""
        return int(self._device.data_ptr()) + 4 * offset

    def upload(
        self, arrays: Mapping[str, IntArray], offsets: Mapping[str, int], stream: int
    ) -> None:
        """Copy arrays to their offsets; the last of them ends what is copied."""
        self._turn ^= 1
        host, event = self._hosts[self._turn], self._copied[self._turn]
        driver.wait_for_event(event)
        end = 0
        for name, array in arrays.items():
            start = offsets[name]
            end = start + array.size
            host[start:end] = array
        driver.copy_to_device(self.address(0), int(host.ctypes.data), 4 * end, stream)
        driver.record_event(event, stream)


def pack(sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Offsets of arrays with these numbers of elements, and the offset behind all of them."""
    offsets, end = {}, 0
    for name, size in sizes.items():
        offsets[name] = end
        end += -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT
    return offsets, end
