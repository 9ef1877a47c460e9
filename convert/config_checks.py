"""What a DeepSeek-V4 model must look like for our layouts and ops to hold it."""

from __future__ import annotations

from dsv4_trt.errors import ConfigError
from dsv4_trt.json_fields import Fields
from dsv4_trt.model_spec import MX_BLOCK, QUANT_BLOCK, ModelSpec

KV_QUANT_BLOCK = 64  # channels of one scale in the fp8 KV cache
MIN_INDEX_HEAD_DIM = 64


def check_fixed(config: Fields) -> None:
    """Settings that select another computation: each has one value that V4 uses."""
    config.only("scoring_func", "sqrtsoftplus")
    config.only("topk_method", "noaux_tc")
    config.only("norm_topk_prob", True)
    config.only("hidden_act", "silu")
    config.only("attention_bias", False)
    config.only("mlp_bias", False)
    config.only("tie_word_embeddings", False)
    config.only("num_key_value_heads", 1)
    if not config.has("quantization_config"):
        return
    quantization = config.section("quantization_config", "an object")
    quantization.only("quant_method", "fp8")
    quantization.only("fmt", "e4m3")
    quantization.only("scale_fmt", "ue8m0")
    quantization.only("activation_scheme", "dynamic")
    quantization.only("weight_block_size", [QUANT_BLOCK, QUANT_BLOCK])


def check_spec(spec: ModelSpec, name: str) -> None:
    """Raise `ConfigError` for sizes that no layout of ours holds; `name` is the config's."""
    for key, found, good, expected in _conditions(spec):
        if not good:
            raise ConfigError(f"{name}: '{key}' is {found}; expected {expected}")


def _conditions(spec: ModelSpec) -> list[tuple[str, int, bool, str]]:
    heads, groups, rope = spec.num_attention_heads, spec.o_groups, spec.qk_rope_head_dim
    index_dim, experts = spec.index_head_dim, spec.n_routed_experts
    blocks = f"a multiple of {QUANT_BLOCK}, the fp8 scale block"
    index_rows = spec.index_n_heads * index_dim
    nope = spec.head_dim - rope
    return [
        ("n_shared_experts", spec.n_shared_experts, spec.n_shared_experts == 1, "1"),
        *(
            (key, getattr(spec, key), getattr(spec, key) % QUANT_BLOCK == 0, blocks)
            for key in (
                "hidden_size",
                "head_dim",
                "q_lora_rank",
                "o_lora_rank",
                "moe_intermediate_size",
            )
        ),
        ("o_groups", groups, heads % groups == 0, f"a divisor of {heads} attention heads"),
        ("qk_rope_head_dim", rope, rope % 2 == 0, "an even number"),
        (
            "qk_rope_head_dim",
            rope,
            nope > 0 and nope % KV_QUANT_BLOCK == 0,
            f"head_dim {spec.head_dim} less a positive multiple of {KV_QUANT_BLOCK}",
        ),
        (
            "index_head_dim",
            index_dim,
            index_dim >= max(MIN_INDEX_HEAD_DIM, rope)
            and index_dim & (index_dim - 1) == 0
            and index_dim % MX_BLOCK == 0,
            f"a power of two of at least {max(MIN_INDEX_HEAD_DIM, rope)}",
        ),
        (
            "index_n_heads",
            spec.index_n_heads,
            index_rows % QUANT_BLOCK == 0,
            f"such that times index_head_dim {index_dim} it is {blocks}",
        ),
        (
            "num_experts_per_tok",
            spec.num_experts_per_tok,
            spec.num_experts_per_tok <= experts,
            f"at most the {experts} routed experts",
        ),
        *(
            (key, getattr(spec, key), getattr(spec, key) < spec.vocab_size, "a token id")
            for key in ("bos_token_id", "eos_token_id")
        ),
    ]
