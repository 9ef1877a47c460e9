"""A `ModelSpec` as the hub's `config.json` and `generation_config.json` spell it."""

from __future__ import annotations

from typing import Any

from dsv4_trt.model_spec import QUANT_BLOCK, ModelSpec

_SAME_NAME = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_nextn_predict_layers",
    "num_hash_layers",
    "num_attention_heads",
    "head_dim",
    "qk_rope_head_dim",
    "q_lora_rank",
    "o_groups",
    "o_lora_rank",
    "sliding_window",
    "index_n_heads",
    "index_head_dim",
    "index_topk",
    "n_routed_experts",
    "n_shared_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "routed_scaling_factor",
    "swiglu_limit",
    "hc_mult",
    "hc_sinkhorn_iters",
    "hc_eps",
    "rms_norm_eps",
    "max_position_embeddings",
    "bos_token_id",
    "eos_token_id",
    "expert_dtype",
)


def hub_config(spec: ModelSpec) -> dict[str, Any]:
    """What `convert/config.py` reads back as `spec`."""
    return {
        "architectures": ["DeepseekV4ForCausalLM"],
        "model_type": "deepseek_v4",
        **{name: getattr(spec, name) for name in _SAME_NAME},
        "compress_ratios": [*spec.compress_ratios, *[0] * spec.num_nextn_predict_layers],
        "rope_theta": spec.rope.theta,
        "compress_rope_theta": spec.rope.compress_theta,
        "rope_scaling": {
            "type": "yarn",
            "factor": spec.rope.factor,
            "original_max_position_embeddings": spec.rope.original_max_position,
            "beta_fast": spec.rope.beta_fast,
            "beta_slow": spec.rope.beta_slow,
        },
        "attention_bias": False,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "norm_topk_prob": True,
        "num_key_value_heads": 1,
        "scoring_func": "sqrtsoftplus",
        "tie_word_embeddings": False,
        "topk_method": "noaux_tc",
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "quantization_config": {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "quant_method": "fp8",
            "scale_fmt": "ue8m0",
            "weight_block_size": [QUANT_BLOCK, QUANT_BLOCK],
        },
    }


def generation_config(spec: ModelSpec) -> dict[str, Any]:
    """The sampling defaults of the model card."""
    return {
        "_from_model_config": True,
        "bos_token_id": spec.bos_token_id,
        "eos_token_id": spec.eos_token_id,
        "do_sample": True,
        "temperature": 1.0,
        "top_p": 1.0,
    }
