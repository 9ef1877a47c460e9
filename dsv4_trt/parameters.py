"""How many parameters a model has, counted from the shapes of its tensors.

Counted are logical weights: an fp4 byte is two, scales and lookup tables are none. Active are those a
token is multiplied with: its share of the routed experts and everything else but the embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dsv4_trt.dtypes import DType
from dsv4_trt.mapping import Mapping
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.rank_tensors import TensorSpec, rank_tensors

NOT_TRAINED = (".scale", ".tid2eid", ".inv_freq", ".row_offset", "expert_map")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCounts:
    """Parameters of one model."""

    total: int  # without the MTP block
    active: int  # per token, LM head included, without the MTP block
    mtp: int  # of the MTP block, experts included; 0 where there is none


def count_parameters(spec: ModelSpec) -> ParameterCounts:
    """Count the parameters of `spec`; nothing but shapes is looked at."""
    embedding = routed = other = mtp = 0
    for tensor in rank_tensors(spec, Mapping(), mtp=spec.has_mtp):
        size = _logical_size(tensor)
        if tensor.name.startswith("mtp."):
            mtp += size
        elif tensor.name == "embed.weight":
            embedding += size
        elif ".experts." in tensor.name:
            routed += size
        else:
            other += size
    active = routed // spec.n_routed_experts * spec.num_experts_per_tok
    return ParameterCounts(total=embedding + routed + other, active=active + other, mtp=mtp)


def _logical_size(tensor: TensorSpec) -> int:
    if tensor.name.endswith(NOT_TRAINED):
        return 0
    return prod(tensor.shape) * (2 if tensor.dtype is DType.I8 else 1)
