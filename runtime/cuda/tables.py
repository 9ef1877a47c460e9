"""Block tables on the device: a copy of the host's, kept up to date by what changed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from dsv4_trt.dtypes import DType
from dsv4_trt.runtime.batch import IntArray, StepBatch
from dsv4_trt.runtime.cuda.placed import Placed

MAX_CHANGES = 1 << 16  # places that go with a step's inputs; more, and the tables are copied whole


class Changes(NamedTuple):
    """Ids that are other than before, and where they lie in the copy."""

    places: IntArray
    ids: IntArray


class DeviceTables:
    """One network's block tables. `version` changes when a table moves or changes its shape."""

    def __init__(self, device: torch.device) -> None:
        self.version = 0
        self.placed: dict[str, Placed] = {}  # by the graph's input
        self._source: IntArray | None = None  # the host's memory that this is a copy of
        self._ids = torch.zeros(0, dtype=torch.int32, device=device)
        self._is_current = False

    @property
    def address(self) -> int:
        """Where the copy lies."""
        return int(self._ids.data_ptr())

    def update(self, batch: StepBatch) -> Changes:
        """Bring the copy up to date but for what is returned: the caller writes it, then says `done`."""
        ids, places = batch.table_ids, batch.table_changes
        by_changes = self._is_current and ids is self._source and places.size <= MAX_CHANGES
        self._is_current = False
        if ids is not self._source:
            self._bind(batch)
        if not by_changes:
            self._ids.copy_(torch.from_numpy(ids))
            places = places[:0]
        return Changes(places.astype(np.int32), ids[places])

    def done(self) -> None:
        """All of the last update is on its way; without this the next one copies everything."""
        self._is_current = True

    def _bind(self, batch: StepBatch) -> None:
        ids = batch.table_ids
        if ids.size != self._ids.numel():
            self._ids = self._ids.new_empty(ids.size)
        self._source = ids
        placed = {}
        for cache_class, table in batch.block_tables.items():
            address = self.address + table.ctypes.data - ids.ctypes.data
            strides = tuple(stride // 4 for stride in table.strides)
            placed[f"block_table.{cache_class}"] = Placed(address, DType.I32, table.shape, strides)
        if placed != self.placed:
            self.placed, self.version = placed, self.version + 1
