import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from dsv4_trt.convert import rank_config
from dsv4_trt.convert.config import load_model_spec
from dsv4_trt.convert.inverse import gather
from dsv4_trt.convert.rank_file import HEADER_ALIGN
from dsv4_trt.convert.source import open_source
from dsv4_trt.dtypes import DType
from dsv4_trt.errors import CheckpointError, ConfigError
from dsv4_trt.mapping import legal_mappings
from dsv4_trt.rank_checkpoint import load_rank_checkpoint
from dsv4_trt.rank_tensors import rank_tensors
from dsv4_trt.safetensors_file import read_header
from tests.convert.checkpoints import LAYOUTS, MICRO, left_behind, make, run
from tests.golden_data import MODELS, golden_file


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    return {layout: make(folder / layout, layout) for layout in LAYOUTS}


def source_bytes(source, name):
    tensor = source.tensors[name]
    with tensor.path.open("rb") as file:
        file.seek(tensor.start)
        return file.read(tensor.nbytes)


def gathers_to(source_dir, output_dir, **choices):
    """Every official tensor comes back byte for byte; returns the checkpoint."""
    run(source_dir, output_dir, verify=True, **choices)
    checkpoint, source = load_rank_checkpoint(output_dir), open_source(source_dir)
    copies = {"mtp.0.emb.tok_emb.weight", "mtp.0.head.weight"}
    gathered = {tensor.name: data.tobytes() for tensor, data in gather(checkpoint)}
    assert set(gathered) == set(source.tensors) - copies
    for name, data in gathered.items():
        assert data == source_bytes(source, name), name
    return checkpoint


@pytest.mark.parametrize("mapping", legal_mappings(MICRO), ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_shard_then_gather_is_the_identity(made, tmp_path, layout, mapping):
    gathers_to(made[layout], tmp_path / "out", tp=mapping.tp_size, ep=mapping.moe_ep_size)


@pytest.mark.parametrize("parts", [{}, {"tp": 2, "ep": 2}], ids=["tp1", "tp2-ep2"])
@pytest.mark.parametrize("model", MODELS)
def test_golden_checkpoints_gather_to_themselves(tmp_path, model, parts):
    source = golden_file(model, "checkpoint/config.json").parent
    checkpoint = gathers_to(source, tmp_path / "out", **parts)
    assert checkpoint.spec == load_model_spec(source)
    assert checkpoint.mtp == checkpoint.spec.has_mtp


@pytest.mark.parametrize("tp", [1, 2])
def test_rank_files_are_what_the_builder_expects(made, tmp_path, tp):
    run(made["instruct"], tmp_path / "out", tp=tp)
    checkpoint = load_rank_checkpoint(tmp_path / "out")
    expected = list(rank_tensors(checkpoint.spec, checkpoint.mapping, mtp=True))
    for rank, path in enumerate(checkpoint.rank_files):
        header = read_header(path)
        assert header.metadata == {
            "layout_version": "1",
            "rank": str(rank),
            "world_size": str(tp),
        }
        found = {t.name: (t.dtype, t.shape) for t in header.tensors}
        assert found == {t.name: (t.dtype, t.shape) for t in expected}
        assert header.tensors[0].start % HEADER_ALIGN == 0
        assert all(t.start % t.dtype.itemsize == 0 for t in header.tensors)
        with safe_open(path, "pt") as file:  # views the mapped file: needs that alignment
            for tensor in expected:
                assert tuple(file.get_tensor(tensor.name).shape) == tensor.shape


def test_a_slice_by_hand_equals_the_rank_file(made, tmp_path):
    """Independent of plan and shards: the official tensors cut with torch."""
    run(made["base"], tmp_path / "out", tp=2)
    official = {}
    for path in made["base"].glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            official.update({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    with safe_open(tmp_path / "out" / "rank1.safetensors", "pt") as file:
        rank = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    def same(name, expected):
        found = rank[name]
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), name
        assert torch.equal(found.view(torch.int8), expected.contiguous().view(torch.int8)), name

    def exponents(scale):
        return (torch.log2(scale) + 127).to(torch.uint8).view(torch.int8)

    at, ffn = "layers.1.attn", "layers.1.ffn"
    for part, change in (("weight", lambda x: x), ("scale", exponents)):
        w = {name: change(official[f"{at}.{name}.{part}"]) for name in ("wq_a", "wkv", "wo_b")}
        same(
            f"{at}.wqkv_a.{part}",
            torch.cat([w["wq_a"].view(torch.int8), w["wkv"].view(torch.int8)]).view(w["wkv"].dtype),
        )
        same(f"{at}.wo_b.{part}", w["wo_b"].chunk(2, 1)[1])
        bank = []
        for expert in range(4):
            for name in ("w1", "w3"):
                half = change(official[f"{ffn}.experts.{expert}.{name}.{part}"]).chunk(2)[1]
                bank.append(half.view(torch.int8))
        bank = torch.stack([torch.cat(bank[i : i + 2]) for i in range(0, 8, 2)])
        same(f"{ffn}.experts.w13.{part}", bank.view(w["wkv"].dtype))
        down = [
            change(official[f"{ffn}.experts.{e}.w2.{part}"]).chunk(2, 1)[1].view(torch.int8)
            for e in range(4)
        ]
        same(f"{ffn}.experts.w2.{part}", torch.stack(down).view(w["wkv"].dtype))
    wkv, gate = (official[f"{at}.compressor.{n}.weight"] for n in ("wkv", "wgate"))
    same(f"{at}.compressor.wkv_gate.weight", torch.cat([wkv, gate]))
    same("layers.0.ffn.gate.tid2eid", official["layers.0.ffn.gate.tid2eid"].int())
    same("embed.weight", official["embed.weight"][32:])


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


@pytest.mark.parametrize("parts", [{}, {"tp": 2}, {"tp": 2, "ep": 2}], ids=str)
def test_experts_as_fp8_hold_the_same_values(made, tmp_path, parts):
    run(made["instruct"], tmp_path / "out", experts="fp8", verify=True, **parts)
    checkpoint, source = load_rank_checkpoint(tmp_path / "out"), open_source(made["instruct"])
    assert checkpoint.spec.expert_dtype == "fp8"
    assert checkpoint.config["source"]["expert_dtype"] == "fp4"
    gathered = {tensor.name: (tensor, data) for tensor, data in gather(checkpoint)}
    experts = [n for n in gathered if ".experts." in n and n.endswith(".weight")]
    assert len(experts) == 4 * 4 * 3
    for name in experts:
        tensor, codes = gathered[name]
        _, blocks = gathered[name.replace(".weight", ".scale")]
        rows, cols = tensor.shape
        values = torch.from_numpy(codes).view(torch.float8_e4m3fn).double().numpy()
        exponent = blocks.reshape(rows // 128, cols // 128).astype(int) - 127
        values = values.reshape(rows, cols) * np.exp2(exponent.repeat(128, 0).repeat(128, 1))
        packed = np.frombuffer(source_bytes(source, name), np.uint8).reshape(rows, -1)
        scales = source_bytes(source, name.replace(".weight", ".scale"))
        exponent = np.frombuffer(scales, np.uint8).reshape(rows, -1).astype(int) - 127
        expected = np.stack([FP4[packed & 15], FP4[packed >> 4]], -1).reshape(rows, cols)
        np.testing.assert_array_equal(values, expected * np.exp2(exponent.repeat(32, 1)))
    others = set(source.tensors) - {n for n in gathered if ".experts." in n}
    for name in others:
        assert gathered[name][1].tobytes() == source_bytes(source, name), name


def test_experts_that_are_fp8_stay_as_they_are(made, tmp_path):
    run(made["fp8-e8m0"], tmp_path / "keep")
    run(made["fp8-e8m0"], tmp_path / "fp8", experts="fp8")
    rank = "rank0.safetensors"
    assert (tmp_path / "keep" / rank).read_bytes() == (tmp_path / "fp8" / rank).read_bytes()


def test_base_scales_become_the_same_bytes_as_instruct_ones(made, tmp_path):
    """The same seed draws the same scales, stored as float32 in one layout and e8m0 in the other."""
    run(made["base"], tmp_path / "base")
    run(made["fp8-e8m0"], tmp_path / "e8m0")
    one, other = (load_rank_checkpoint(tmp_path / name) for name in ("base", "e8m0"))
    scales = [n for n in one.manifest["ranks"][0]["tensors"] if n.endswith(".scale")]
    assert len(scales) > 20
    for name in scales:
        assert (
            one.manifest["ranks"][0]["tensors"][name] == other.manifest["ranks"][0]["tensors"][name]
        )


def test_the_manifest_digests_are_those_of_the_bytes(made, tmp_path):
    run(made["instruct"], tmp_path / "out", tp=2)
    checkpoint = load_rank_checkpoint(tmp_path / "out")
    for entry, path in zip(checkpoint.manifest["ranks"], checkpoint.rank_files, strict=True):
        data = path.read_bytes()
        assert (entry["file"], entry["bytes"]) == (path.name, len(data))
        tensors = read_header(path).tensors
        assert list(entry["tensors"]) == [t.name for t in tensors]
        whole = hashlib.sha256(data[: tensors[0].start])
        for t in tensors:
            digest = hashlib.sha256(data[t.start : t.start + t.nbytes])
            assert entry["tensors"][t.name] == digest.hexdigest()
            whole.update(digest.digest())
        assert entry["digest"] == whole.hexdigest()


@pytest.mark.parametrize("workers", [1, 3])
def test_the_result_does_not_depend_on_the_number_of_threads(made, tmp_path, workers):
    run(made["instruct"], tmp_path / "one", tp=2, workers=2)
    run(made["instruct"], tmp_path / "two", tp=2, workers=workers)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_config_has_tensorrt_llm_field_names(made, tmp_path):
    run(made["instruct"], tmp_path / "out", tp=2, ep=2)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    expected = {
        "architecture": "DeepseekV4ForCausalLM",
        "dtype": "bfloat16",
        "logits_dtype": "float32",
        "vocab_size": 64,
        "hidden_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "hidden_act": "silu",
        "intermediate_size": 256,
        "norm_epsilon": 1e-6,
        "max_position_embeddings": MICRO.max_position_embeddings,
        "mtp": True,
    }
    assert {key: config[key] for key in expected} == expected
    assert config["mapping"] == {
        "world_size": 2,
        "tp_size": 2,
        "pp_size": 1,
        "cp_size": 1,
        "moe_tp_size": 1,
        "moe_ep_size": 2,
    }
    sha256 = hashlib.sha256((made["instruct"] / "config.json").read_bytes()).hexdigest()
    assert config["source"] == {
        "config_sha256": sha256,
        "expert_dtype": "fp4",
        "scale_dtype": "F8_E8M0",
    }
    assert config["quantization"]["expert_quant_algo"] == rank_config.EXPERT_QUANT_ALGO["fp4"]


def test_tokenizer_and_generation_config_go_along(tmp_path):
    extra = {}
    for name in ("tokenizer.json", "tokenizer_config.json"):
        extra[name] = tmp_path / name
        extra[name].write_text(f'{{"{name}": 1}}')
    source = make(tmp_path / "hf", extra_files=extra)
    run(source, tmp_path / "out")
    for name in (*extra, "generation_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (source / name).read_bytes()


def test_an_existing_output_is_never_touched(made, tmp_path):
    output = tmp_path / "out"
    output.mkdir()
    (output / "mine").write_text("precious")
    for resume in (False, True):
        with pytest.raises(ConfigError, match="already exists"):
            run(made["instruct"], output, resume=resume)
    assert left_behind(tmp_path) == ["out"]
    assert left_behind(output) == ["mine"]
    (output / "mine").unlink()
    run(made["instruct"], output)  # an empty folder is taken
    assert left_behind(tmp_path) == ["out"]


@pytest.mark.parametrize("target", ["empty", "nowhere"])
def test_an_output_that_is_a_link_is_refused_before_the_work(made, tmp_path, target):
    (tmp_path / "empty").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / target)
    with pytest.raises(ConfigError, match="is a link"):
        run(made["instruct"], tmp_path / "out")
    assert left_behind(tmp_path) == ["empty", "out"]


def test_an_output_that_is_a_mount_point_is_refused_before_the_work(made):
    with pytest.raises(ConfigError, match="is a mount point"):
        run(made["instruct"], Path("/proc"))


def test_a_relative_output_is_taken(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(made["instruct"], Path("out"))
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    run(made["instruct"], Path("."))
    assert left_behind(tmp_path) == ["inside", "out"]


def test_an_output_below_a_file_is_refused(made, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="can not be made"):
        run(made["instruct"], tmp_path / "file" / "out")


def test_parents_of_the_output_are_made(made, tmp_path):
    run(made["instruct"], tmp_path / "a" / "b" / "out")
    assert load_rank_checkpoint(tmp_path / "a" / "b" / "out").mtp


def test_ranks_of_different_conversions_do_not_gather(made, tmp_path):
    run(made["instruct"], tmp_path / "out", tp=2)
    make(tmp_path / "other", seed=4)
    run(tmp_path / "other", tmp_path / "out2", tp=2)
    os.replace(tmp_path / "out2" / "rank1.safetensors", tmp_path / "out" / "rank1.safetensors")
    with pytest.raises(CheckpointError, match="disagrees with another rank"):
        list(gather(load_rank_checkpoint(tmp_path / "out")))


@pytest.mark.parametrize("choice", [{"experts": "fp4"}, {"mtp": "drop"}, {"workers": 0}])
def test_illegal_options_are_refused(made, tmp_path, choice):
    (key,) = choice
    with pytest.raises(ConfigError, match=f"{key} is"):
        run(made["instruct"], tmp_path / "out", **choice)


def test_scale_bytes_are_int8_in_rank_files(made, tmp_path):
    """TensorRT refuses unsigned bytes and e8m0 as plugin inputs."""
    run(made["instruct"], tmp_path / "out")
    dtypes = {t.dtype for t in read_header(tmp_path / "out" / "rank0.safetensors").tensors}
    assert dtypes == {DType.F32, DType.I32, DType.BF16, DType.F8_E4M3, DType.I8}
