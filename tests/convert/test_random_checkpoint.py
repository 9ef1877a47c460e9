import hashlib
import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner
from safetensors import safe_open

from dsv4_trt.cli.make_checkpoint import command
from dsv4_trt.convert import random_checkpoint, random_checkpoint_tokenizer
from dsv4_trt.convert.config import load_model_spec
from dsv4_trt.convert.names import MTP_COPIES, official_tensors
from dsv4_trt.convert.random_checkpoint import write_random_checkpoint
from dsv4_trt.convert.random_checkpoint_shards import plan_shards
from dsv4_trt.convert.random_checkpoint_tokenizer import tokenizer_files
from dsv4_trt.convert.random_checkpoint_values import draw
from dsv4_trt.dtypes import DType
from dsv4_trt.errors import CapacityError, ConfigError, MissingDependency
from dsv4_trt.presets import FLASH, TINY, cut_layers
from dsv4_trt.rank_tensors import TensorSpec

SPEC = replace(TINY, vocab_size=1024)
BASE = replace(SPEC, expert_dtype="fp8")
TORCH = {
    DType.F32: torch.float32,
    DType.BF16: torch.bfloat16,
    DType.F8_E4M3: torch.float8_e4m3fn,
    DType.F8_E8M0: torch.float8_e8m0fnu,
    DType.I64: torch.int64,
    DType.I8: torch.int8,
}
FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
FP4 = torch.cat([FP4, -FP4])


def load(folder):
    """Tensors by name, and the file of each, as the safetensors library reads them."""
    tensors, files = {}, {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118
                assert name not in tensors
                tensors[name], files[name] = file.get_tensor(name), path.name
    return tensors, files


@pytest.fixture(scope="module")
def instruct(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "instruct"
    write_random_checkpoint(SPEC, folder, seed=7)
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "base"
    write_random_checkpoint(BASE, folder, seed=7, scale_dtype=DType.F32, base_copies=True)
    return folder


def check_layout(folder, spec, scale_dtype, copies):
    tensors, files = load(folder)
    expected = {t.name: t for t in official_tensors(spec, scale_dtype=scale_dtype, mtp=True)}
    for copy in copies:
        expected[copy] = replace(expected[MTP_COPIES[copy]], name=copy)
    assert set(tensors) == set(expected)
    for name, tensor in tensors.items():
        assert (tensor.dtype, tuple(tensor.shape)) == (
            TORCH[expected[name].dtype],
            expected[name].shape,
        )
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == files
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in expected.values())
    assert load_model_spec(folder) == spec
    return tensors


def test_instruct_layout(instruct):
    check_layout(instruct, SPEC, DType.F8_E8M0, ())
    assert json.loads((instruct / "generation_config.json").read_text())["temperature"] == 1.0


def test_base_layout_has_equal_copies(base):
    tensors = check_layout(base, BASE, DType.F32, MTP_COPIES)
    for copy, source in MTP_COPIES.items():
        assert torch.equal(tensors[copy], tensors[source])
    for name, tensor in tensors.items():
        if name.endswith(".scale"):
            assert torch.equal(torch.frexp(tensor).mantissa, torch.full_like(tensor, 0.5))


def dequantize(tensors, name):
    weight, scale = tensors[f"{name}.weight"], tensors[f"{name}.scale"].float()
    if weight.dtype is torch.int8:
        byte = weight.view(torch.uint8).long()
        value = torch.stack([FP4[byte & 15], FP4[byte >> 4]], -1).flatten(1)
        return value * scale.repeat_interleave(32, 1)
    return weight.float() * scale.repeat_interleave(128, 0).repeat_interleave(128, 1)


@pytest.mark.parametrize("layout", ["instruct", "base"])
def test_weights_are_well_conditioned(layout, request):
    tensors, _ = load(request.getfixturevalue(layout))
    gains = {"w1": 4, "w3": 4, "w2": 0.1, "wo_a": 1.5}
    quantized = [n.removesuffix(".scale") for n in tensors if n.endswith(".scale")]
    assert any(tensors[f"{name}.scale"].numel() > 1 for name in quantized)
    for name in quantized:
        weight, scale = dequantize(tensors, name), tensors[f"{name}.scale"].float()
        assert weight.isfinite().all()
        if scale.numel() > 1:
            assert scale.unique().numel() > 1, name
        unit = gains.get(name.rsplit(".", 1)[-1], 1.0) / weight.shape[1] ** 0.5
        std = float(weight.std()) / unit
        assert std == pytest.approx(1, abs=0.3), name
        assert abs(float(weight.mean())) < 0.2 * unit
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            assert tensor.float().isfinite().all(), name
        if name.endswith("norm.weight"):
            assert float(tensor.float().mean()) == pytest.approx(1, abs=0.1)
            assert float(tensor.min()) > 0
        if name.endswith(("attn_sink", "gate.bias", "ape", "_base", "_fn")):
            assert float(tensor.std()) > 0.01
    logits = torch.randn(64, SPEC.hidden_size) @ tensors["head.weight"].float().T
    assert float(logits.std()) == pytest.approx(5, rel=0.1)


def test_both_nibbles_and_every_code_occur(instruct):
    tensors, _ = load(instruct)
    codes = torch.cat(
        [t.view(torch.uint8).flatten() for t in tensors.values() if t.dtype is torch.int8]
    )
    counts = torch.bincount(codes.long(), minlength=256).float()
    assert float(counts.min()) > 0.9 * float(counts.mean())
    weight = tensors["layers.0.attn.wq_b.weight"].float()
    assert 400 < float(weight.abs().max()) <= 448


def test_experts_of_a_token_are_distinct_and_cover_all(instruct):
    tensors, _ = load(instruct)
    for layer in range(SPEC.num_hash_layers):
        ids = tensors[f"layers.{layer}.ffn.gate.tid2eid"]
        assert int(ids.min()) == 0
        assert int(ids.max()) == SPEC.n_routed_experts - 1
        assert (ids.sort(1).values.diff(dim=1) > 0).all()
        counts = torch.bincount(ids.flatten(), minlength=SPEC.n_routed_experts).float()
        assert float((counts / counts.mean() - 1).abs().max()) < 0.3
    first, second = (tensors[f"layers.{i}.ffn.gate.tid2eid"] for i in range(2))
    assert not torch.equal(first, second)


def test_bytes_depend_on_the_seed_and_not_on_the_shards(instruct, tmp_path):
    whole, _ = load(instruct)
    write_random_checkpoint(SPEC, tmp_path / "split", seed=7, shard_bytes=1 << 20)
    split, files = load(tmp_path / "split")
    assert len(set(files.values())) > 5
    sizes = [p.stat().st_size for p in (tmp_path / "split").glob("*.safetensors")]
    assert max(sizes) < (1 << 20) + 40_000  # a header on top
    assert all(torch.equal(whole[n].view(torch.uint8), split[n].view(torch.uint8)) for n in whole)
    write_random_checkpoint(SPEC, tmp_path / "other", seed=8)
    other, _ = load(tmp_path / "other")
    same = [n for n in whole if torch.equal(whole[n].view(torch.uint8), other[n].view(torch.uint8))]
    assert not [n for n in same if whole[n].numel() > 24]


def test_a_seed_means_the_same_weights_in_every_version(instruct):
    digest = hashlib.sha256()
    for path in sorted(instruct.glob("*.safetensors")):
        digest.update(path.read_bytes())
    assert digest.hexdigest()[:16] == "d3462437db385133"


def test_no_mtp(tmp_path):
    write_random_checkpoint(SPEC, tmp_path / "made", seed=0, mtp=False)
    tensors, _ = load(tmp_path / "made")
    assert not [name for name in tensors if name.startswith("mtp")]
    assert load_model_spec(tmp_path / "made") == replace(SPEC, num_nextn_predict_layers=0)


def test_tensors_are_aligned_to_their_elements(instruct):
    for path in instruct.glob("*.safetensors"):
        raw = path.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + length])
        assert length % 8 == 0
        del header["__metadata__"]
        for entry in header.values():
            assert (8 + length + entry["data_offsets"][0]) % DType(entry["dtype"]).itemsize == 0


def test_plan_keeps_order_and_limit():
    tensors = [TensorSpec(f"t{i}", DType.I8, (size,)) for i, size in enumerate([5, 5, 12, 1, 9])]
    names = [[t.name for t in shard.tensors] for shard in plan_shards(tensors, 10)]
    assert names == [["t0", "t1"], ["t2"], ["t3", "t4"]]


def test_existing_folder_is_left_alone(tmp_path):
    out = tmp_path / "made"
    out.mkdir()
    (out / "mine").touch()
    with pytest.raises(ConfigError, match="already exists"):
        write_random_checkpoint(SPEC, out, seed=0)
    assert [p.name for p in tmp_path.rglob("*")] == ["made", "mine"]


def test_partial_folder_of_a_killed_run_is_named(tmp_path):
    partial = tmp_path / ".made.partial"
    partial.mkdir()
    with pytest.raises(ConfigError, match=r"\.made\.partial exists.*delete that folder"):
        write_random_checkpoint(SPEC, tmp_path / "made", seed=0)
    partial.rmdir()
    write_random_checkpoint(SPEC, tmp_path / "made", seed=0)


def test_unwritable_parent(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="can not be created"):
        write_random_checkpoint(SPEC, tmp_path / "file" / "made", seed=0)


def test_too_little_disk_is_seen_before_writing(tmp_path, monkeypatch):
    usage = SimpleNamespace(free=1 << 20)
    monkeypatch.setattr(random_checkpoint.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(CapacityError, match=r"needs 0\.02 GB.* 0\.00 GB free"):
        write_random_checkpoint(SPEC, tmp_path / "made", seed=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "raised"),
    [(OSError(28, "full"), CapacityError), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_nothing_is_left_behind(tmp_path, error, raised):
    written = []

    def stop(done):
        written.append(done)
        if sum(written) > 1 << 20:
            raise error

    with pytest.raises(raised):
        write_random_checkpoint(SPEC, tmp_path / "made", seed=0, progress=stop)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"seed": 0, "shard_bytes": 0}, "shard_bytes is 0"),
        ({"seed": 0, "scale_dtype": DType.BF16}, "scale_dtype is BF16; expected F8_E8M0 or F32"),
        ({"seed": 0, "mtp": False, "base_copies": True}, "base_copies is set without mtp"),
    ],
)
def test_illegal_arguments(tmp_path, arguments, match):
    with pytest.raises(ConfigError, match=match):
        write_random_checkpoint(SPEC, tmp_path / "made", **arguments)
    assert not list(tmp_path.iterdir())


def run(*arguments):
    return CliRunner().invoke(command, arguments, catch_exceptions=True)


def test_command_writes_what_it_says(tmp_path):
    out = tmp_path / "made"
    result = run(
        *("--preset", "tiny", "--seed", "7", "--vocab-size", "1024", "--no-tokenizer"),
        *("--output-dir", str(out), "--shard-size", "4MB", "--expert-dtype", "fp8", "--json"),
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    check_layout(out, BASE, DType.F32, MTP_COPIES)
    assert found["num_shards"] == len(list(out.glob("*.safetensors"))) > 1
    assert found["num_tensors"] == len(load(out)[0])


def test_command_with_the_real_tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    out = tmp_path / "made"
    result = run("--preset", "tiny", "--no-mtp", "--output_dir", str(out))
    assert result.exit_code == 0, result.output
    tokenizer = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    assert tokenizer.token_to_id("<｜begin▁of▁sentence｜>") == 0
    assert tokenizer.get_vocab_size() <= load_model_spec(out).vocab_size
    assert json.loads((out / "tokenizer_config.json").read_text())["add_bos_token"] is False


@pytest.mark.parametrize("vocab_size", ["1024", "129281"])
def test_tokenizer_that_does_not_fit_the_vocabulary(tmp_path, vocab_size):
    """Too few ids cannot hold a prompt, more could come out without a text."""
    out = str(tmp_path / "made")
    result = run("--preset", "tiny", "--vocab_size", vocab_size, "--output_dir", out)
    assert isinstance(result.exception, ConfigError)
    assert "--no-tokenizer" in str(result.exception)


def test_missing_tokenizer_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(random_checkpoint_tokenizer, "PACKAGE", "no_such_tokenizer_package")
    with pytest.raises(MissingDependency, match=r"dsv4-trt\[demo\]"):
        tokenizer_files()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--preset", "huge"),
        ("--preset", "flash-layers=0"),
        ("--preset", "flash-layers=44"),
        ("--preset", "pro-layers=x"),
        ("--preset", "tiny", "--shard_size", "0"),
        ("--preset", "tiny", "--shard_size", "4 parsecs"),
        ("--preset", "tiny", "--seed", "-1"),
    ],
)
def test_usage_errors(arguments, tmp_path):
    result = run(*arguments, "--output_dir", str(tmp_path / "made"))
    assert result.exit_code == 2
    assert not (tmp_path / "made").exists()
    shutil.rmtree(tmp_path)


def test_memory_does_not_grow_with_the_tensors():
    for tensor in official_tensors(cut_layers(FLASH, 1), scale_dtype=DType.F8_E8M0, mtp=False):
        first = next(draw(tensor, FLASH, 0))
        assert first.nbytes <= 8 << 20, tensor
        if ".experts.0." in tensor.name:
            break
