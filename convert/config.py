"""A Hugging Face `config.json` of DeepSeek-V4 becomes a `ModelSpec`, old and new field names alike."""

from __future__ import annotations

from pathlib import Path

from dsv4_trt.convert.config_checks import check_fixed, check_spec
from dsv4_trt.convert.config_rope import read_rope
from dsv4_trt.convert.config_schedule import read_compress_ratios, read_num_hash_layers
from dsv4_trt.errors import ConfigError
from dsv4_trt.json_fields import Fields, read_object
from dsv4_trt.model_spec import ModelSpec

MODEL_TYPE = "deepseek_v4"
EXPERT_DTYPES = ("fp4", "fp8")


def load_model_spec(model_dir: Path, expert_dtype_found: str | None = None) -> ModelSpec:
    """Read and check `model_dir/config.json`.

    `expert_dtype_found` is what the expert tensors hold, "fp4" or "fp8"; it stands in for an absent
    `expert_dtype` and must agree with a present one. `num_nextn_predict_layers` is taken as it is, so
    that a DSpark checkpoint (a drafter of 3 stages in `mtp.*`) can be read.

    Raises:
        CheckpointError: there is no config.json.
        ConfigError: a key is missing, illegal or unsupported; names key, found and expected.
    """
    config = read_object(model_dir / "config.json", "a Hugging Face checkpoint of DeepSeek-V4")
    return spec_from_config(config, expert_dtype_found)


def spec_from_config(config: Fields, expert_dtype_found: str | None = None) -> ModelSpec:
    """Read and check the data of a Hugging Face config; see `load_model_spec`."""
    if config.value("model_type", repr(MODEL_TYPE)) != MODEL_TYPE:
        raise config.refusal(
            "model_type", config.data["model_type"], f"{MODEL_TYPE!r}, the only model read here"
        )
    check_fixed(config)
    integer, number = config.integer, config.number
    layers, head_dim = integer("num_hidden_layers"), integer("head_dim")
    rope_dim = integer("qk_rope_head_dim")
    spec = ModelSpec(
        vocab_size=integer("vocab_size"),
        hidden_size=integer("hidden_size"),
        num_hidden_layers=layers,
        num_nextn_predict_layers=integer("num_nextn_predict_layers", minimum=0),
        num_hash_layers=read_num_hash_layers(config, layers),
        num_attention_heads=integer("num_attention_heads"),
        head_dim=head_dim,
        qk_rope_head_dim=rope_dim,
        q_lora_rank=integer("q_lora_rank"),
        o_groups=integer("o_groups"),
        o_lora_rank=integer("o_lora_rank"),
        sliding_window=integer("sliding_window"),
        index_n_heads=integer("index_n_heads"),
        index_head_dim=integer("index_head_dim"),
        index_topk=integer("index_topk"),
        n_routed_experts=integer("n_routed_experts"),
        n_shared_experts=integer("n_shared_experts"),
        num_experts_per_tok=integer("num_experts_per_tok"),
        moe_intermediate_size=integer("moe_intermediate_size"),
        routed_scaling_factor=number("routed_scaling_factor"),
        swiglu_limit=number("swiglu_limit"),
        hc_mult=integer("hc_mult"),
        hc_sinkhorn_iters=integer("hc_sinkhorn_iters"),
        hc_eps=number("hc_eps"),
        rms_norm_eps=number("rms_norm_eps"),
        rope=read_rope(config, rope_dim / head_dim),
        max_position_embeddings=integer("max_position_embeddings"),
        bos_token_id=integer("bos_token_id", minimum=0),
        eos_token_id=integer("eos_token_id", minimum=0),
        compress_ratios=read_compress_ratios(config, layers),
        expert_dtype=_expert_dtype(config, expert_dtype_found),
    )
    check_spec(spec, config.name)
    return spec


def _expert_dtype(config: Fields, found: str | None) -> str:
    config.only("expert_dtype", *EXPERT_DTYPES)
    stated: str | None = config.data.get("expert_dtype")
    if stated is None and found is None:
        raise ConfigError(
            f"{config.name}: 'expert_dtype' is missing and no expert tensor tells it; "
            f"expected one of {', '.join(EXPERT_DTYPES)}"
        )
    if stated is not None and found is not None and stated != found:
        raise ConfigError(
            f"{config.name}: 'expert_dtype' is {stated!r}, the expert tensors are {found}; "
            f"expected the two to agree, so set 'expert_dtype' to {found!r} if the tensors are right"
        )
    chosen = stated or found
    assert chosen is not None
    return chosen
