"""The `config.json` and `manifest.json` of a rank checkpoint.

Field names are TensorRT-LLM's where it has them; what V4 needs besides is the `model` section.
"""

from __future__ import annotations

from typing import Any

from dsv4_trt import __version__
from dsv4_trt.contract import CHECKPOINT_FORMAT, rank_file
from dsv4_trt.convert.conversion import Conversion
from dsv4_trt.dtypes import DType
from dsv4_trt.model_spec import MX_BLOCK, QUANT_BLOCK, ModelSpec
from dsv4_trt.rank_tensors import LAYOUT_VERSION

ARCHITECTURE = "DeepseekV4ForCausalLM"
QUANT_ALGO = "FP8_BLOCK_SCALES"  # e4m3 weights, a scale per 128x128 block
EXPERT_QUANT_ALGO = {"fp4": "W4A8_MXFP4_FP8", "fp8": QUANT_ALGO}


def rank_config(conversion: Conversion) -> dict[str, Any]:
    """Contents of `config.json`."""
    plan, spec, mapping = conversion.plan, conversion.plan.spec, conversion.plan.mapping
    return {
        "format_version": CHECKPOINT_FORMAT,
        "layout_version": LAYOUT_VERSION,
        "producer": {"name": "dsv4-trt", "version": __version__},
        **_trtllm_fields(spec),
        "mapping": {
            "world_size": mapping.world_size,
            "tp_size": mapping.tp_size,
            "pp_size": 1,
            "cp_size": 1,
            "moe_tp_size": mapping.moe_tp_size,
            "moe_ep_size": mapping.moe_ep_size,
        },
        "quantization": _quantization(spec),
        "model": spec.to_json(),
        "mtp": plan.mtp,
        "source": {
            "config_sha256": conversion.config_sha256,
            "expert_dtype": plan.layout.expert_dtype,
            "scale_dtype": str(plan.layout.scale_dtype),
        },
    }


def rank_manifest(conversion: Conversion, digests: list[dict[str, str]]) -> dict[str, Any]:
    """Contents of `manifest.json`; `digests` are the sha256 of each rank's tensors by name."""
    return {
        "format_version": CHECKPOINT_FORMAT,
        "ranks": [
            {
                "file": rank_file(rank),
                "bytes": layout.nbytes,
                "digest": layout.digest(sha256),
                "tensors": {tensor.name: sha256[tensor.name] for tensor in layout.tensors},
            }
            for rank, (layout, sha256) in enumerate(zip(conversion.layouts, digests, strict=True))
        ],
    }


def _trtllm_fields(spec: ModelSpec) -> dict[str, Any]:
    return {
        "architecture": ARCHITECTURE,
        "dtype": "bfloat16",
        "logits_dtype": "float32",
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "num_hidden_layers": spec.num_hidden_layers,
        "num_attention_heads": spec.num_attention_heads,
        "num_key_value_heads": 1,
        "head_size": spec.head_dim,
        "hidden_act": "silu",
        "intermediate_size": spec.moe_intermediate_size,
        "norm_epsilon": spec.rms_norm_eps,
        "position_embedding_type": "rope_gptj",  # rotates adjacent pairs
        "max_position_embeddings": spec.max_position_embeddings,
    }


def _quantization(spec: ModelSpec) -> dict[str, Any]:
    return {
        "quant_algo": QUANT_ALGO,
        "group_size": QUANT_BLOCK,
        "expert_quant_algo": EXPERT_QUANT_ALGO[spec.expert_dtype],
        "expert_group_size": MX_BLOCK if spec.expert_dtype == "fp4" else QUANT_BLOCK,
        "scale_dtype": str(DType.F8_E8M0),
        "kv_cache_quant_algo": "FP8",  # what the model was trained for; `build` chooses
        "has_zero_point": False,
        "pre_quant_scale": False,
        "exclude_modules": [
            "embed",
            "head",
            "*norm",
            "*.gate",
            "*.compressor.*",
            "*.weights_proj",
            "*hc_*",
        ],
    }
