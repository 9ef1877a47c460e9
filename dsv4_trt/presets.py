"""Known models as `ModelSpec` values: the two releases, and small ones of the same architecture.

`FLASH` and `PRO` are what the hub's `config.json` files say; their weights hold fp4 experts and one
MTP block. `TINY` and `SMALL` keep the release's vocabulary, head and indexer widths, so that the real
tokenizer and every page layout fit.
"""

from __future__ import annotations

from dataclasses import replace

from dsv4_trt.errors import ConfigError
from dsv4_trt.model_spec import ModelSpec, RopeSpec

ROPE = RopeSpec(
    theta=10000.0,
    compress_theta=160000.0,
    factor=16.0,
    original_max_position=65536,
    beta_fast=32.0,
    beta_slow=1.0,
)

FLASH = ModelSpec(
    vocab_size=129280,
    hidden_size=4096,
    num_hidden_layers=43,
    num_nextn_predict_layers=1,
    num_hash_layers=3,
    num_attention_heads=64,
    head_dim=512,
    qk_rope_head_dim=64,
    q_lora_rank=1024,
    o_groups=8,
    o_lora_rank=1024,
    sliding_window=128,
    index_n_heads=64,
    index_head_dim=128,
    index_topk=512,
    n_routed_experts=256,
    n_shared_experts=1,
    num_experts_per_tok=6,
    moe_intermediate_size=2048,
    routed_scaling_factor=1.5,
    swiglu_limit=10.0,
    hc_mult=4,
    hc_sinkhorn_iters=20,
    hc_eps=1e-6,
    rms_norm_eps=1e-6,
    rope=ROPE,
    max_position_embeddings=1048576,
    bos_token_id=0,
    eos_token_id=1,
    compress_ratios=(0, 0, *(4, 128) * 20, 4),
    expert_dtype="fp4",
)

PRO = replace(
    FLASH,
    hidden_size=7168,
    num_hidden_layers=61,
    num_attention_heads=128,
    q_lora_rank=1536,
    o_groups=16,
    index_topk=1024,
    n_routed_experts=384,
    moe_intermediate_size=3072,
    routed_scaling_factor=2.5,
    compress_ratios=(128, 128, *(4, 128) * 29, 4),
)

SMALL = replace(
    FLASH,
    hidden_size=1024,
    num_hidden_layers=7,
    num_attention_heads=16,
    q_lora_rank=512,
    o_groups=4,
    o_lora_rank=256,
    index_topk=128,
    n_routed_experts=32,
    moe_intermediate_size=512,
    compress_ratios=(0, 0, 4, 128, 4, 128, 4),
)

TINY = replace(
    FLASH,
    hidden_size=256,
    num_hidden_layers=4,
    num_hash_layers=2,
    num_attention_heads=8,
    q_lora_rank=128,
    o_groups=2,
    o_lora_rank=128,
    index_topk=64,
    n_routed_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=128,
    compress_ratios=(0, 4, 128, 4),
)


def cut_layers(spec: ModelSpec, num_layers: int) -> ModelSpec:
    """The same model with only its first `num_layers` layers; the MTP block stays.

    Raises:
        ConfigError: `num_layers` is below 1 or above what `spec` has.
    """
    if not 1 <= num_layers <= spec.num_hidden_layers:
        raise ConfigError(
            f"can not keep {num_layers} layers of a model with {spec.num_hidden_layers}; "
            f"expected 1 to {spec.num_hidden_layers}"
        )
    return replace(
        spec,
        num_hidden_layers=num_layers,
        num_hash_layers=min(spec.num_hash_layers, num_layers),
        compress_ratios=spec.compress_ratios[:num_layers],
    )
