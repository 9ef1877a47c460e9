"""What the rooms agree on: build options, format versions, step inputs, precision, dtypes."""

from __future__ import annotations

import json

import pytest

from dsv4_trt.contract import (
    BuildSpec,
    check_format,
    pool_bucket,
    pool_size,
    rank_file,
    step_inputs,
)
from dsv4_trt.dtypes import DType
from dsv4_trt.errors import BundleMismatch, ConfigError, Dsv4Error, MissingDependency
from dsv4_trt.graph import Value, ValueKind
from dsv4_trt.kv_layout import Bucket, solve
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.precision import Precision
from dsv4_trt.presets import FLASH, PRO


def test_build_spec_survives_json():
    spec = BuildSpec(max_batch_size=3, max_num_tokens=7, kv_cache_dtype="bf16", mtp=False)
    spec.check()
    assert BuildSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"engine": "onnx"}, "engine is 'onnx'; expected one of native"),
        ({"kv_cache_dtype": "fp4"}, "kv_cache_dtype is 'fp4'; expected one of fp8, bf16"),
        ({"kv_cache_dtype": "fp32"}, "kv_cache_dtype"),
        ({"indexer_cache_dtype": "fp32"}, "expected one of fp4, fp8, bf16"),
        ({"max_batch_size": 0}, "max_batch_size is 0"),
        ({"max_num_tokens": -5}, "max_num_tokens is -5"),
        ({"max_num_tokens": 2**22 + 1}, "max_num_tokens is 4194305; expected 1 to 4194304"),
        ({"max_batch_size": 3 * 10**9}, "max_batch_size is 3000000000"),
        ({"max_seq_len": 0}, "max_seq_len is 0"),
        ({"max_batch_size": 9, "max_num_tokens": 8}, "below max_batch_size 9"),
    ],
)
def test_an_illegal_build_option_is_named(fields, message):
    with pytest.raises(ConfigError, match=message):
        BuildSpec(**fields).check()


def test_an_unknown_build_option_is_named():
    with pytest.raises(ConfigError, match="max_beam_width"):
        BuildSpec.from_json({**BuildSpec().to_json(), "max_beam_width": 1})


@pytest.mark.parametrize("found", [2, "1", None])
def test_another_format_version_is_refused_by_name(found):
    with pytest.raises(BundleMismatch, match=f"the thing has format version {found!r}"):
        check_format("the thing", found, 1)


def test_the_same_format_version_passes():
    check_format("the thing", 1, 1)


def test_step_inputs_have_a_table_and_a_mapping_per_class():
    layout = solve(FLASH, "fp8", "fp8")
    inputs = {i.name: i for i in step_inputs(layout)}
    assert len(inputs) == 8 + 2 * len(layout.classes)
    assert inputs["block_table.csa"].shape == (21, "num_table_rows", "pages.csa")
    assert inputs["block_table.hca_state"].shape == (20, "num_table_rows", "pages.hca_state")
    assert inputs["slot_mapping.swa"].shape == ("num_tokens",)
    assert {i.dtype for i in inputs.values()} == {DType.I32, DType.I8}


def test_a_pool_value_names_its_bucket():
    for bucket in Bucket:
        shape = (pool_size(bucket), 576)
        value = Value(name="kv", kind=ValueKind.KV, dtype=DType.I8, shape=shape)
        assert pool_bucket(value) is bucket


def test_rank_files_are_named_by_rank():
    assert rank_file(11) == "rank11.safetensors"


@pytest.mark.parametrize("precision", [Precision.exact(), Precision.official("bf16", "fp8")])
def test_precision_survives_json(precision):
    assert Precision.from_json(json.loads(json.dumps(precision.to_json()))) == precision


@pytest.mark.parametrize("spec", [FLASH, PRO], ids=["flash", "pro"])
def test_model_spec_survives_json(spec):
    assert ModelSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_a_model_section_of_another_version_is_refused():
    data = FLASH.to_json()
    del data["hc_mult"]
    with pytest.raises(ConfigError, match=r"unknown keys \['q'\], missing keys \['hc_mult'\]"):
        ModelSpec.from_json({**data, "q": 1})


def test_dtypes_know_their_size():
    assert {d.itemsize for d in (DType.F8_E4M3, DType.F8_E8M0, DType.I8, DType.U8)} == {1}
    assert (DType.BF16.itemsize, DType.F32.itemsize, DType.I64.itemsize) == (2, 4, 8)


def test_a_missing_dependency_says_how_to_get_it():
    error = MissingDependency("cuda", "cuda", "CUDA graphs")
    assert isinstance(error, Dsv4Error)
    assert "pip install 'dsv4-trt[cuda]'" in str(error)
