import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4_trt.convert.config import load_model_spec, spec_from_config
from dsv4_trt.errors import CheckpointError, ConfigError
from dsv4_trt.json_fields import Fields
from dsv4_trt.presets import FLASH, PRO

CONFIGS = Path(__file__).parent / "hub_configs"
GOLDEN = Path(__file__).parents[1] / "golden"


def hub(name="flash"):
    return json.loads((CONFIGS / f"{name}.json").read_text())


def read(data, found="fp4"):
    return spec_from_config(Fields("config.json", data), found)


def in_transformers_spelling(data):
    """What transformers 5 saves for the same model."""
    data = dict(data)
    names = {0: "sliding", 4: "compressed_sparse", 128: "heavily_compressed"}
    layers = data["num_hidden_layers"]
    ratios = data.pop("compress_ratios")[:layers]
    hashed = data.pop("num_hash_layers")
    scaling = data.pop("rope_scaling")
    data["layer_types"] = [f"{names[ratio]}_attention" for ratio in ratios]
    data["compress_rates"] = {
        "compressed_sparse_attention": 4,
        "heavily_compressed_attention": 128,
    }
    data["mlp_layer_types"] = ["hash_moe"] * hashed + ["moe"] * (layers - hashed)
    data["rope_parameters"] = {
        "main": {"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 0.125},
        "compress": {
            **scaling,
            "rope_type": "yarn",
            "rope_theta": 160000,
            "partial_rotary_factor": 0.125,
            "attention_factor": 1.0,
        },
    }
    return data


def test_hub_configs_are_the_presets():
    assert read(hub("flash")) == FLASH
    assert read(hub("pro"), None) == PRO


def test_transformers_spelling_is_the_same_model():
    for name in ("flash", "pro"):
        assert read(in_transformers_spelling(hub(name))) == read(hub(name))


def golden_checkpoints():
    root = os.environ.get("DSV4_GOLDEN_DIR")
    folders = {GOLDEN} | ({Path(root)} if root else set())
    return sorted(path for folder in folders for path in folder.glob("tiny-*/checkpoint"))


@pytest.mark.parametrize("path", golden_checkpoints(), ids=lambda path: path.parent.name)
def test_golden_configs(path):
    expected = {
        "tiny-a": ((0, 4, 128, 4), "fp4", 1, 8),
        "tiny-b": ((128, 128, 4), "fp4", 0, 16),
        "tiny-base": ((0, 4, 128), "fp8", 1, 8),
    }[path.parent.name]
    spec = load_model_spec(path)
    found = (
        spec.compress_ratios,
        spec.expert_dtype,
        spec.num_nextn_predict_layers,
        spec.num_attention_heads,
    )
    assert found == expected
    assert spec.rope == FLASH.rope
    with pytest.raises(ConfigError, match="expected the two to agree"):
        load_model_spec(path, "fp8" if spec.expert_dtype == "fp4" else "fp4")


@pytest.mark.parametrize("extra", [[], [0], [0, 0, 0]])
def test_compress_ratios_may_end_in_zeros_of_drafting_blocks(extra):
    data = hub()
    data["compress_ratios"] = data["compress_ratios"][:43] + extra
    assert read(data).compress_ratios == FLASH.compress_ratios


@pytest.mark.parametrize(
    ("ratios", "match"),
    [
        ([0] * 42, "'compress_ratios' has 42 entries; expected 43, 44, 46 for 43 layers"),
        ([0] * 45, "has 45 entries"),
        ([0] * 43 + [4], r"'compress_ratios\[43\]' is 4; expected 0"),
        ([0, 8] + [0] * 41, r"'compress_ratios\[1\]' is 8; expected one of \(0, 4, 128\)"),
        ([0, False] + [0] * 41, r"'compress_ratios\[1\]' is False"),
        ([0, 4.0] + [0] * 41, r"'compress_ratios\[1\]' is 4.0"),
        ("0,4", "'compress_ratios' is '0,4'; expected a list of 43, 44, 46"),
        (None, "'compress_ratios' is missing; expected a list"),
    ],
)
def test_bad_compress_ratios(ratios, match):
    with pytest.raises(ConfigError, match=match):
        read(hub() | {"compress_ratios": ratios})


@given(st.lists(st.sampled_from([0, 4, 128]), min_size=1, max_size=8), st.sampled_from([0, 1, 3]))
def test_any_legal_schedule_is_read_back(ratios, extra):
    data = hub() | {
        "num_hidden_layers": len(ratios),
        "compress_ratios": ratios + [0] * extra,
        "num_hash_layers": min(3, len(ratios)),
    }
    assert read(data).compress_ratios == tuple(ratios)
    assert read(in_transformers_spelling(data)).compress_ratios == tuple(ratios)


def test_expert_dtype_comes_from_config_or_tensors():
    data = hub()
    assert "expert_dtype" not in data
    assert read(data, "fp8").expert_dtype == "fp8"
    assert read(data | {"expert_dtype": "fp8"}, None).expert_dtype == "fp8"
    with pytest.raises(ConfigError, match="'expert_dtype' is missing and no expert tensor"):
        read(data, None)
    with pytest.raises(ConfigError, match="'expert_dtype' is 'nvfp4'; expected 'fp4' or 'fp8'"):
        read(data | {"expert_dtype": "nvfp4"}, "fp4")
    with pytest.raises(ConfigError, match="is 'fp4', the expert tensors are fp8"):
        read(data | {"expert_dtype": "fp4"}, "fp8")


@pytest.mark.parametrize(
    "key", ["rope_theta", "compress_rope_theta", "rope_scaling", "num_hash_layers", "head_dim"]
)
def test_missing_keys_have_no_default(key):
    data = hub()
    del data[key]
    with pytest.raises(ConfigError, match=f"config.json: '{key}' is missing; expected"):
        read(data)


@pytest.mark.parametrize(
    "key", ["factor", "original_max_position_embeddings", "beta_fast", "beta_slow"]
)
def test_missing_yarn_keys_have_no_default(key):
    data = hub()
    del data["rope_scaling"][key]
    with pytest.raises(ConfigError, match=f"rope_scaling: '{key}' is missing; expected"):
        read(data)
    data = in_transformers_spelling(hub())
    del data["rope_parameters"]["compress"][key]
    with pytest.raises(ConfigError, match=f"rope_parameters: compress: '{key}' is missing"):
        read(data)


def without_type(data):
    del data["rope_scaling"]["type"]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (without_type, "'rope_type' is missing; expected 'yarn'"),
        (lambda d: d["rope_scaling"].update(type="linear"), "'type' is 'linear'; expected 'yarn'"),
        (lambda d: d["rope_scaling"].update(mscale=1.0), r"unknown keys \['mscale'\]"),
        (lambda d: d["rope_scaling"].update(attention_factor=1.2), "'attention_factor' is 1.2"),
        (lambda d: d["rope_scaling"].update(factor=0), "'factor' is 0; expected a finite number"),
        (lambda d: d["rope_scaling"].update(rope_theta=1e4), "'rope_theta' is 10000.0"),
        (lambda d: d.update(rope_theta=float("nan")), "'rope_theta' is nan"),
        (lambda d: d.update(rope_theta="10000"), "'rope_theta' is '10000'"),
    ],
)
def test_bad_rope(change, match):
    data = hub()
    change(data)
    with pytest.raises(ConfigError, match=match):
        read(data)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda d: d.pop("compress_rates"), "'compress_rates' is missing"),
        (lambda d: d["compress_rates"].update(compressed_sparse_attention=8), "is 8; expected 4"),
        (lambda d: d["layer_types"].pop(), "'layer_types' has 42 entries; expected 43"),
        (lambda d: d["layer_types"].__setitem__(0, "full"), r"'layer_types\[0\]' is 'full'"),
        (lambda d: d["mlp_layer_types"].reverse(), "every 'hash_moe' before every 'moe'"),
        (lambda d: d.update(num_hash_layers=2), "'num_hash_layers' is 2; expected 3"),
        (lambda d: d.update(compress_ratios=[4] * 43), "'layer_types' gives layer 0 the ratio 0"),
        (lambda d: d.update(rope_theta=5e5), "expected 10000.0, as 'rope_parameters' says"),
        (lambda d: d["rope_parameters"].pop("main"), "rope_parameters: 'main' is missing"),
        (lambda d: d["rope_parameters"]["main"].update(factor=2), r"unknown keys \['factor'\]"),
        (
            lambda d: d["rope_parameters"]["main"].update(partial_rotary_factor=0.5),
            "'partial_rotary_factor' is 0.5; expected 0.125",
        ),
        (
            lambda d: d.update(rope_scaling=hub()["rope_scaling"] | {"factor": 8}),
            "expected the two to agree",
        ),
    ],
)
def test_transformers_spelling_that_contradicts(change, match):
    data = in_transformers_spelling(hub())
    change(data)
    with pytest.raises(ConfigError, match=match):
        read(data)


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("model_type", "deepseek_v41", "'model_type' is 'deepseek_v41'; expected 'deepseek_v4'"),
        ("model_type", "deepseek_v3", "'model_type' is 'deepseek_v3'"),
        ("model_type", None, "'model_type' is missing"),
        ("scoring_func", "sigmoid", "'scoring_func' is 'sigmoid'; expected 'sqrtsoftplus'"),
        ("topk_method", "greedy", "'topk_method' is 'greedy'"),
        ("norm_topk_prob", False, "'norm_topk_prob' is False"),
        ("norm_topk_prob", 1, "'norm_topk_prob' is 1"),
        ("hidden_act", "gelu", "'hidden_act' is 'gelu'"),
        ("attention_bias", True, "'attention_bias' is True"),
        ("tie_word_embeddings", True, "'tie_word_embeddings' is True"),
        ("num_key_value_heads", 8, "'num_key_value_heads' is 8; expected 1"),
        ("n_shared_experts", 2, "'n_shared_experts' is 2; expected 1"),
        ("hidden_size", 4100, "'hidden_size' is 4100; expected a multiple of 128"),
        ("hidden_size", 4096.0, "'hidden_size' is 4096.0; expected an integer"),
        ("hidden_size", True, "'hidden_size' is True; expected an integer"),
        ("hidden_size", -4096, "'hidden_size' is -4096; expected an integer of at least 1"),
        ("moe_intermediate_size", 2080, "'moe_intermediate_size' is 2080"),
        ("q_lora_rank", 1000, "'q_lora_rank' is 1000"),
        ("o_lora_rank", 64, "'o_lora_rank' is 64"),
        ("o_groups", 7, "'o_groups' is 7; expected a divisor of 64 attention heads"),
        ("qk_rope_head_dim", 65, "'qk_rope_head_dim' is 65; expected an even number"),
        ("qk_rope_head_dim", 32, "head_dim 512 less a positive multiple of 64"),
        ("qk_rope_head_dim", 512, "head_dim 512 less a positive multiple of 64"),
        ("index_head_dim", 96, "'index_head_dim' is 96; expected a power of two"),
        ("index_head_dim", 32, "'index_head_dim' is 32; expected a power of two of at least 64"),
        ("num_experts_per_tok", 257, "at most the 256 routed experts"),
        ("num_hash_layers", 44, "'num_hash_layers' is 44; expected at most the 43 layers"),
        ("num_hash_layers", -1, "'num_hash_layers' is -1"),
        ("swiglu_limit", 0, "'swiglu_limit' is 0"),
        ("rms_norm_eps", float("inf"), "'rms_norm_eps' is inf"),
        ("bos_token_id", 129280, "'bos_token_id' is 129280; expected a token id"),
        ("index_topk", 2**31, "'index_topk' is 2147483648; expected .* below 2"),
        ("qk_rope_head_dim", 10**400, "'qk_rope_head_dim' is 1000.*; expected an integer"),
        ("swiglu_limit", 10**400, "'swiglu_limit' is 1000.*; expected a finite number"),
        ("hc_eps", 1e-60, "'hc_eps' is 1e-60; expected .* that float32 holds"),
        ("rope_theta", 1, "'rope_theta' is 1; expected a number above 1"),
        ("compress_rope_theta", 1.0, "'compress_rope_theta' is 1.0; expected a number above 1"),
        ("hidden_size", "x" * 5000, "'hidden_size' is 'xxx.{1,200}; expected an integer"),
        ("eos_token_id", [1, 2], r"'eos_token_id' is \[1, 2\]"),
        ("quantization_config", {"quant_method": "gptq"}, "'quant_method' is 'gptq'"),
        ("quantization_config", {"scale_fmt": "fp32"}, "'scale_fmt' is 'fp32'; expected 'ue8m0'"),
        ("quantization_config", {"weight_block_size": [32, 32]}, r"expected \[128, 128\]"),
        ("quantization_config", "fp8", "'quantization_config' is 'fp8'"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(key, value, match):
    with pytest.raises(ConfigError, match=match):
        read(hub() | {key: value})


@given(st.data())
def test_no_value_of_any_key_escapes_the_typed_errors(data):
    config = hub()
    junk = st.recursive(
        st.none() | st.booleans() | st.integers(-300, 300) | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
        max_leaves=4,
    )
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), min_size=1, max_size=3)):
        config[key] = data.draw(junk)
    with contextlib.suppress(ConfigError):
        spec = read(config)
        assert type(spec.hidden_size) is int
        assert len(spec.compress_ratios) == spec.num_hidden_layers


def test_files_that_are_not_configs(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist; expected a Hugging Face"):
        load_model_spec(tmp_path)
    path = tmp_path / "config.json"
    for text, match in (("{", "can not be read as JSON"), ("[1]", "holds a list")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=match):
            load_model_spec(tmp_path)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(ConfigError, match="can not be read as JSON"):
        load_model_spec(tmp_path)
    path.write_text(json.dumps(hub("pro")))
    assert load_model_spec(tmp_path, "fp4") == PRO
