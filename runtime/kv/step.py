"""What one step changes in the tables of a `KvCache`: prepared first, then committed or rolled back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dsv4_trt.runtime.batch import IntArray
from dsv4_trt.runtime.kv.marks import Mark
from dsv4_trt.runtime.kv.pool import IndexArray
from dsv4_trt.runtime.kv.tables import ClassTable, Places


class Passed(NamedTuple):
    """Pages of a marked boundary that have left the window by the end of the step."""

    table: ClassTable
    row: int
    columns: IndexArray  # [n], behind the rings
    fresh: IndexArray  # [m, layers]: the last m of them were taken for this step


@dataclass(slots=True)
class PreparedStep:
    """A step whose pages are in the tables; nothing has been dropped yet."""

    rows: IntArray  # [num_seqs] of the block tables; each once
    starts: IntArray  # [num_seqs] tokens held before the step
    ends: IntArray  # [num_seqs] tokens held after it
    marks: Sequence[Mark]
    came: Places
    pages: IndexArray  # [n] pages that the step took, which stand in `came`
    left: Places  # of pages that leave the windows
    passed: list[Passed] = field(default_factory=list)
