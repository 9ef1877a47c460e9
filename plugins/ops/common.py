"""Types and attributes that several ops share."""

from __future__ import annotations

from dsv4_trt.dtypes import DType
from dsv4_trt.plugins.op_schema import AttrSpec
from dsv4_trt.precision import ACT_FORMATS, INDEXER_FORMATS, KV_FORMATS

F32, BF16, I32, I8 = DType.F32, DType.BF16, DType.I32, DType.I8
FLOAT, INT = AttrSpec(float), AttrSpec(int)
ACT = AttrSpec(str, ACT_FORMATS)
FLOAT_TYPE = AttrSpec(str, (str(DType.F32), str(DType.BF16)))
KV = AttrSpec(str, KV_FORMATS)
INDEXER = AttrSpec(str, INDEXER_FORMATS)
WEIGHT = AttrSpec(str, ("fp8", "bf16"))
WEIGHT_TYPES = {"fp8": DType.F8_E4M3, "bf16": BF16}
EXPERT_TYPES = {"fp4": I8, "fp8": DType.F8_E4M3}
INDEXER_TYPES = {"fp4": I8, "fp8": DType.F8_E4M3, "bf16": BF16, "fp32": F32}
