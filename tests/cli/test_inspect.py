import json
import os
import shutil
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
from click.testing import CliRunner
from safetensors import safe_open

from dsv4_trt.builder.bundle import build_bundle
from dsv4_trt.builder.dummy_checkpoint import dummy_checkpoint
from dsv4_trt.cli.inspect import command
from dsv4_trt.contract import BuildSpec
from dsv4_trt.convert.conversion import ConvertOptions, prepare
from dsv4_trt.convert.pipeline import convert
from dsv4_trt.convert.random_checkpoint import write_random_checkpoint
from dsv4_trt.dtypes import DType
from dsv4_trt.errors import BundleMismatch, CheckpointError, ConfigError
from dsv4_trt.mapping import Mapping
from dsv4_trt.presets import TINY
from dsv4_trt.rank_checkpoint import load_rank_checkpoint

SPEC = replace(TINY, vocab_size=1024)


def inspect(path, *arguments):
    result = CliRunner().invoke(command, [str(path), *arguments])
    if result.exception is not None:
        raise result.exception
    assert result.exit_code == 0
    return result.output


def report(path, *arguments):
    return json.loads(inspect(path, "--json", *arguments))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """An official checkpoint `hf`, converted for two ranks as `ck`, built as `engine`."""
    home = tmp_path_factory.mktemp("inspect")
    write_random_checkpoint(SPEC, home / "hf", seed=0, shard_bytes=8 << 20)
    mapping = Mapping(tp_size=2, moe_ep_size=2)
    options = ConvertOptions(model_dir=home / "hf", output_dir=home / "ck", mapping=mapping)
    convert(prepare(options))
    build_bundle(load_rank_checkpoint(home / "ck"), home / "engine", BuildSpec())
    return home


def stored(folder):
    found = []
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118
                tensor = file.get_tensor(name)
                found.append((name, list(tensor.shape), tensor.nbytes, path.name))
    return sorted(found)


def listed(found):
    return sorted((t["name"], t["shape"], t["num_bytes"], t["file"]) for t in found["tensors"])


def test_official_checkpoint(home):
    found = report(home / "hf", "--tensors")
    assert found["kind"] == "official checkpoint"
    assert found["model"] == SPEC.to_json()
    assert [layer["kind"] for layer in found["layers"]] == ["swa", "csa", "hca", "csa", "swa"]
    assert [layer["experts_by"] for layer in found["layers"][:3]] == ["token id"] * 2 + ["score"]
    assert found["storage"] == {
        "expert_dtype": "fp4",
        "scale_dtype": "F8_E8M0",
        "drafter": "mtp",
    }
    assert listed(found) == stored(home / "hf")
    assert len(found["files"]) > 1
    assert sum(entry["num_bytes"] for entry in found["files"]) == sum(
        path.stat().st_size for path in (home / "hf").glob("*.safetensors")
    )
    assert sum(entry["num_tensors"] for entry in found["dtypes"]) == len(found["tensors"])


def test_parameters_are_those_of_the_stored_tensors(home):
    found = report(home / "hf", "--tensors")
    counts = {"total": 0, "mtp": 0}
    for tensor in found["tensors"]:
        name = tensor["name"]
        if name.endswith((".scale", "tid2eid")):
            continue
        size = prod(tensor["shape"]) * (2 if tensor["dtype"] == "I8" else 1)
        counts["mtp" if name.startswith("mtp.") else "total"] += size
    assert {key: found["parameters"][key] for key in counts} == counts
    assert 0 < found["parameters"]["active"] < counts["total"]


def test_rank_checkpoint(home):
    found = report(home / "ck", "--tensors")
    assert found["kind"] == "rank checkpoint"
    assert found["mapping"]["tp_size"] == 2
    assert found["model"] == SPEC.to_json()
    assert listed(found) == stored(home / "ck")
    assert found["parameters"] == report(home / "hf")["parameters"]


def test_engine_bundle_and_its_graphs(home):
    found = report(home / "engine", "--tensors", "--graph", "--precision", "all")
    assert found["kind"] == "engine bundle"
    assert found["build"] == BuildSpec().to_json()
    assert found["kv"]["page_bytes"] == {"large": 37440, "middle": 4608, "small": 1728}
    assert found["missing_weights"] == []
    assert listed(found) == stored(home / "engine" / "weights")
    assert {name: set(parts) for name, parts in found["graphs"].items()} == {
        "serving": {"trunk", "mtp"},
        "exact": {"trunk", "mtp"},
    }
    nodes = found["graphs"]["serving"]["trunk"]["nodes"]
    text = inspect(home / "engine", "--graph")
    assert all(f" {node['name']} " in text and f" {node['op']} " in text for node in nodes)
    assert "out=logits F32[num_logits, 1024]" in text
    assert "graph trunk, exact" not in text


def test_long_parts_only_where_asked_for(home):
    assert not {"tensors", "graphs"} & set(report(home / "engine"))
    assert "layers.3.ffn.gate.weight" not in inspect(home / "hf")
    line = next(
        line
        for line in inspect(home / "hf", "--tensors").splitlines()
        if " layers.3.ffn.gate.weight " in line
    )
    assert "BF16" in line
    assert "[8, 256]" in line
    assert "4,096" in line
    assert "model-0000" in line


@pytest.mark.parametrize("product", ["hf", "ck", "engine"])
def test_text_holds_config_layers_and_counts(home, product):
    text = inspect(home / product)
    counts = report(home / product)["parameters"]
    for part in ("hidden_size", "rope.compress_theta", "csa", "mtp.0", f"{counts['total']:,}"):
        assert part in text


def test_bundle_without_its_weights(home, tmp_path):
    shutil.copytree(home / "engine", tmp_path / "engine")
    shutil.rmtree(tmp_path / "engine" / "weights")
    assert report(tmp_path / "engine")["missing_weights"] == []  # still where they were built
    manifest = tmp_path / "engine" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(str(home), "/moved"))
    found = report(tmp_path / "engine", "--graph")
    assert found["missing_weights"] == [
        "/moved/ck/rank0.safetensors",
        "/moved/ck/rank1.safetensors",
    ]
    assert found["graphs"]["serving"]["trunk"]["nodes"]
    assert "weights not found: /moved/ck/rank1.safetensors" in inspect(tmp_path / "engine")


def test_base_layout_without_mtp(tmp_path):
    spec = replace(SPEC, expert_dtype="fp8", num_nextn_predict_layers=0)
    write_random_checkpoint(spec, tmp_path / "hf", seed=0, scale_dtype=DType.F32, mtp=False)
    found = report(tmp_path / "hf")
    assert found["storage"] == {"expert_dtype": "fp8", "scale_dtype": "F32", "drafter": "none"}
    assert found["parameters"]["mtp"] == 0
    assert [layer["layer"] for layer in found["layers"]] == ["0", "1", "2", "3"]


def test_dspark_drafter_is_named_and_not_counted(home, tmp_path):
    shutil.copytree(home / "hf", tmp_path / "hf")
    for path in (tmp_path / "hf").glob("model*"):
        path.write_bytes(path.read_bytes().replace(b'"mtp.0.e_proj', b'"mtp.1.e_proj'))
    found = report(tmp_path / "hf")
    assert found["storage"]["drafter"] == "dspark"
    assert found["parameters"]["mtp"] == 0


def golden_checkpoints():
    root = os.environ.get("DSV4_GOLDEN_DIR") or str(Path(__file__).parents[1] / "golden")
    return sorted(Path(root).glob("tiny-*/checkpoint"))


@pytest.mark.parametrize("path", golden_checkpoints(), ids=lambda path: path.parent.name)
def test_golden_checkpoints(path):
    assert listed(report(path, "--tensors")) == stored(path)


def test_what_is_none_of_them(home, tmp_path):
    for path, found in (
        (tmp_path, "is a folder with none of these"),
        (tmp_path / "x", "not a folder"),
    ):
        with pytest.raises(ConfigError, match=f"{found}; expected an engine bundle .*official"):
            inspect(path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="none of these"):
        inspect(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="can not be read as JSON"):
        inspect(tmp_path)
    with pytest.raises(ConfigError, match="'rank checkpoint' and has no graph"):
        inspect(home / "ck", "--graph")


def test_damaged_products(home, tmp_path):
    shutil.copytree(home / "hf", tmp_path / "hf")
    next((tmp_path / "hf").glob("*.safetensors")).unlink()
    with pytest.raises(CheckpointError, match="lacks 1 of"):
        inspect(tmp_path / "hf")
    shutil.copytree(home / "engine", tmp_path / "engine")
    for name, old, new in (
        ("manifest.json", '"format_version": 1', '"format_version": 99'),
        ("graph.json", '"format_version": 1', '"format_version": 99'),
        ("graph.json", '"op":', '"oops":'),
        ("graph.json", '"aliases": {}', '"aliases": 7'),
        ("config.json", '"build_config"', '"oops"'),
        ("config.json", '"moe_intermediate_size": 128', '"moe_intermediate_size": []'),
    ):
        path = tmp_path / "engine" / name
        whole = path.read_text()
        path.write_text(whole.replace(old, new, 1))
        with pytest.raises(BundleMismatch, match=r"format version 99|damaged"):
            inspect(tmp_path / "engine")
        path.write_text(whole)
    assert report(tmp_path / "engine")["kind"] == "engine bundle"


def test_a_bundle_without_weights_says_so(tmp_path):
    out = tmp_path / "dummy"
    build_bundle(dummy_checkpoint(TINY, mtp=True), out, BuildSpec())
    assert report(out)["dummy_weights"] is True
    assert "no weights: an engine makes them up" in inspect(out)
