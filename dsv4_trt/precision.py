"""Which number format each part of the model computes and stores in: precision as data.

The builder writes these choices into the graph's node attributes; references and kernels honour
them. `Precision.official()` is the recipe the weights were trained for.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from dsv4_trt.dtypes import DType

KV_CACHE_DTYPES = ("fp8", "bf16")  # what a build may ask for; exact precision stores fp32
INDEXER_CACHE_DTYPES = ("fp4", "fp8", "bf16")
KV_FORMATS = (*KV_CACHE_DTYPES, "fp32")
INDEXER_FORMATS = (*INDEXER_CACHE_DTYPES, "fp32")
ACT_FORMATS = ("act8_128", "none")  # e4m3 per 128 inputs with a power-of-two scale / as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Formats by role."""

    name: str  # "serving" or "exact"
    dtype: DType  # streams, norms' outputs, q, kv, GEMM outputs
    linear_act: str  # input of fp8 linears
    expert_act: str  # input of expert GEMMs
    wo_a_act: str  # input of the grouped output projection
    kv: str  # window and compressed entries
    indexer: str  # indexer keys and queries
    score_dtype: DType  # index scores: dot products, weighting and sum are rounded to it
    prob_dtype: DType  # unnormalised attention probabilities before the value product

    @staticmethod
    def official(kv: str = "fp8", indexer: str = "fp4") -> Precision:
        """The official recipe, with a choice of cache formats."""
        return Precision(
            name="serving",
            dtype=DType.BF16,
            linear_act="act8_128",
            expert_act="act8_128",
            wo_a_act="none",
            kv=kv,
            indexer=indexer,
            score_dtype=DType.BF16,
            prob_dtype=DType.BF16,
        )

    @staticmethod
    def exact() -> Precision:
        """fp32 everywhere, every quantizer the identity; weights are dequantized without loss."""
        return Precision(
            name="exact",
            dtype=DType.F32,
            linear_act="none",
            expert_act="none",
            wo_a_act="none",
            kv="fp32",
            indexer="fp32",
            score_dtype=DType.F32,
            prob_dtype=DType.F32,
        )

    def to_json(self) -> dict[str, str]:
        """Plain JSON data."""
        return {key: str(value) for key, value in asdict(self).items()}

    @staticmethod
    def from_json(data: dict[str, str]) -> Precision:
        """Read what `to_json` wrote."""
        types = {"dtype", "score_dtype", "prob_dtype"}
        return Precision(**{k: DType(v) if k in types else v for k, v in data.items()})  # type: ignore[arg-type]
