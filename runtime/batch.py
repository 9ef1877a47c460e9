"""One step's work as plain arrays: what the executor hands to an engine, and what it gets back.

Field meanings are those of `contract.step_inputs`. Arrays are numpy; this module knows no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dsv4_trt.kv_layout import CacheClass

if TYPE_CHECKING:
    import torch

    from dsv4_trt.runtime.kv.marks import Mark

IntArray = npt.NDArray[np.int32]


@dataclass(slots=True, kw_only=True)
class StepRecord:
    """What a step feeds: all there is to know besides the state of the cache.

    Decodes (sequences that go on with one token) come first.
    """

    rows: IntArray  # [num_seqs] of the block tables
    lengths: IntArray  # [num_seqs] tokens that each feeds, at least 1
    token_ids: IntArray  # [num_tokens]
    num_logits: IntArray  # [num_seqs] how many of the last tokens' logits are wanted
    num_decodes: int
    marks: Sequence[Mark] = ()


@dataclass(slots=True, kw_only=True)
class StepBatch:
    """A ragged, token-major step: decode sequences first, then prefill chunks.

    Arrays are views of buffers that the next step overwrites; block tables are the cache's own.
    """

    token_ids: IntArray  # [num_tokens]
    positions: IntArray  # [num_tokens]
    seq_ids: IntArray  # [num_tokens]
    query_start: IntArray  # [num_seqs + 1]
    seq_lens: IntArray  # [num_seqs]
    table_rows: IntArray  # [num_seqs]
    logits_rows: IntArray  # [num_logits]
    num_decodes: int
    block_tables: dict[CacheClass, IntArray] = field(default_factory=dict)  # [layers, rows, pages]
    slot_mappings: dict[CacheClass, IntArray] = field(default_factory=dict)  # [num_tokens]
    # for engines that keep a copy of the tables: their memory, and what changed in it since the last
    # batch, as places in the memory
    table_ids: IntArray
    table_changes: npt.NDArray[np.intp]

    def arrays(self) -> dict[str, IntArray]:
        """What is new in every step, by the names of the graph's inputs: all but the block tables."""
        arrays = {
            "token_ids": self.token_ids,
            "positions": self.positions,
            "seq_ids": self.seq_ids,
            "query_start": self.query_start,
            "seq_lens": self.seq_lens,
            "table_rows": self.table_rows,
            "logits_rows": self.logits_rows,
        }
        return arrays | {f"slot_mapping.{c}": slots for c, slots in self.slot_mappings.items()}


@dataclass(slots=True, kw_only=True)
class StepOutput:
    """What a step gives back; tensors of the caller's own."""

    logits: torch.Tensor  # [num_logits, vocab_size] fp32
    streams: torch.Tensor | None  # [num_tokens, hc_mult, hidden], when asked for
