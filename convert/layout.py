"""Which of the official layouts a checkpoint has, told by its tensors alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dsv4_trt.convert.source import Source
from dsv4_trt.dtypes import DType
from dsv4_trt.errors import CheckpointError

EXPERT_WEIGHT = re.compile(r"layers\.\d+\.ffn\.experts\.\d+\.w[123]\.weight")
EXPERT_DTYPES = {DType.I8: "fp4", DType.F8_E4M3: "fp8"}
SCALE_SUFFIX = ".scale"


@dataclass(frozen=True, slots=True)
class SourceLayout:
    """How quantized weights are stored."""

    expert_dtype: (
        str  # "fp4": pairs in I8 with a scale per 32 inputs; "fp8": e4m3 with 128x128 scales
    )
    scale_dtype: DType  # F8_E8M0, or F32 powers of two (only where experts are fp8)


def detect_layout(source: Source) -> SourceLayout:
    """Look at the first expert weight and the first block scale.

    Raises `CheckpointError` for any dtype that no official layout has; nothing is ever cast.
    """
    expert_dtype = _expert_dtype(source)
    legal = [DType.F8_E8M0] + [DType.F32] * (expert_dtype == "fp8")
    scales = (name for name in source.tensors if is_block_scale(name) and ".experts." not in name)
    first = min(scales, default=None)
    if first is None:
        raise CheckpointError(
            f"{source.model_dir} has no block scales (names ending in {SCALE_SUFFIX}); "
            "expected an official DeepSeek-V4 checkpoint with fp8 weights"
        )
    dtype = source.tensors[first].dtype
    if dtype not in legal:
        raise scale_dtype_error(first, dtype, " or ".join(legal), expert_dtype)
    return SourceLayout(expert_dtype, dtype)


def is_block_scale(name: str) -> bool:
    """Whether an official name is the scale tensor of a quantized weight."""
    return name.endswith(SCALE_SUFFIX)


def scale_dtype_error(name: str, found: DType, expected: str, expert_dtype: str) -> CheckpointError:
    """The error for a scale of another type than its layout has."""
    return CheckpointError(
        f"scale '{name}' is {found}, expected {expected} with {expert_dtype} experts; scales are never "
        "cast (an e8m0 byte 120 means 2^-7, not 120), so fetch or write the checkpoint in an official "
        "layout"
    )


def _expert_dtype(source: Source) -> str:
    first = min((name for name in source.tensors if EXPERT_WEIGHT.fullmatch(name)), default=None)
    if first is None:
        raise CheckpointError(
            f"{source.model_dir} has no routed expert weights (layers.L.ffn.experts.E.w1.weight); "
            "expected an official DeepSeek-V4 checkpoint"
        )
    dtype = source.tensors[first].dtype
    if dtype not in EXPERT_DTYPES:
        raise CheckpointError(
            f"expert weight '{first}' is {dtype}; expected I8 (packed fp4) or F8_E4M3"
        )
    return EXPERT_DTYPES[dtype]
