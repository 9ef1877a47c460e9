import json
import os
import shutil

import pytest

from dsv4_trt.convert.conversion import prepare
from dsv4_trt.convert.pipeline import convert
from dsv4_trt.convert.source import INDEX_FILE, SINGLE_FILE, open_source
from dsv4_trt.errors import CheckpointError, ConfigError
from tests.convert.checkpoints import Loose, left_behind, make, options, run


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    return make(tmp_path_factory.mktemp("official") / "hf")


@pytest.fixture
def folder(official, tmp_path):
    return shutil.copytree(official, tmp_path / "hf")


def index(folder):
    return json.loads((folder / INDEX_FILE).read_text())["weight_map"]


def write_index(folder, weight_map):
    (folder / INDEX_FILE).write_text(json.dumps({"weight_map": weight_map}))


def refused(folder, tmp_path, error, match):
    """The conversion is refused with this message, and nothing appears beside the source."""
    with pytest.raises(error, match=match):
        run(folder, tmp_path / "out")
    assert left_behind(tmp_path) == ["hf"]


def test_every_tensor_is_found_once(official):
    source = open_source(official)
    assert len(source.shards) > 2
    assert set(source.tensors) == set(index(official))


def test_a_missing_shard_is_named(folder, tmp_path):
    shards = sorted(set(index(folder).values()))
    (folder / shards[1]).unlink()
    refused(folder, tmp_path, CheckpointError, f"lacks 1 of {len(shards)} shards: {shards[1]}")


def test_a_truncated_shard_is_named(folder, tmp_path):
    path = folder / sorted(set(index(folder).values()))[0]
    path.write_bytes(path.read_bytes()[:-1])
    refused(folder, tmp_path, CheckpointError, f"{path}.*cut short")


def test_a_tensor_in_two_shards_is_refused(folder, tmp_path):
    loose = Loose.load(folder)
    shutil.rmtree(folder)
    loose.tensors["model.norm.weight"] = loose.tensors["norm.weight"]
    others = sorted(set(loose.shards.values()) - {loose.shards["norm.weight"]})
    loose.shards["model.norm.weight"] = others[0]
    loose.write(folder)
    refused(folder, tmp_path, CheckpointError, "tensor 'norm.weight' is in .* and in ")


def test_an_index_entry_that_no_shard_has_is_refused(folder, tmp_path):
    weight_map = index(folder)
    write_index(folder, {**weight_map, "layers.0.extra": weight_map["norm.weight"]})
    refused(folder, tmp_path, CheckpointError, "'layers.0.extra' is in .*does not list it")


def test_an_index_that_names_the_wrong_shard_is_refused(folder, tmp_path):
    weight_map = index(folder)
    other = next(s for s in weight_map.values() if s != weight_map["norm.weight"])
    write_index(folder, {**weight_map, "norm.weight": other})
    refused(folder, tmp_path, CheckpointError, f"'norm.weight' is in {other}, it is in")


def test_a_tensor_that_the_index_does_not_name_is_refused(folder, tmp_path):
    weight_map = index(folder)
    del weight_map["norm.weight"]
    write_index(folder, weight_map)
    refused(folder, tmp_path, CheckpointError, "does not name 1 tensors .*: norm.weight")


@pytest.mark.parametrize("weight_map", [{}, [], None])
def test_an_empty_index_is_refused(folder, tmp_path, weight_map):
    write_index(folder, weight_map)
    refused(folder, tmp_path, CheckpointError, "has no 'weight_map'")


@pytest.mark.parametrize(
    "shard", ["../hf/x.safetensors", "/etc/passwd", 5, "", "a\nb", "a\0b", "a\ud800", "a" * 5000]
)
def test_a_shard_outside_the_folder_is_refused(folder, tmp_path, shard):
    write_index(folder, {**index(folder), "norm.weight": shard})
    refused(folder, tmp_path, CheckpointError, "expected a file name without folders")


@pytest.mark.parametrize("name", ["norm\nweight", "norm\ud800", "n" * 5000])
def test_an_index_with_an_unprintable_name_is_refused(folder, tmp_path, name):
    write_index(folder, {**index(folder), name: index(folder)["norm.weight"]})
    refused(folder, tmp_path, CheckpointError, "names a tensor .*short printable name")


def test_an_index_that_names_a_tensor_with_and_without_prefix_is_refused(folder, tmp_path):
    weight_map = index(folder)
    write_index(folder, {**weight_map, "model.norm.weight": weight_map["norm.weight"]})
    refused(folder, tmp_path, CheckpointError, "'norm.weight' with and without 'model.'")


@pytest.mark.parametrize("file", [INDEX_FILE, "config.json"])
def test_a_key_that_stands_twice_is_refused(folder, tmp_path, file):
    text = (folder / file).read_text()
    (folder / file).write_text(text.replace("{", '{"twice": 1, "twice": 2,', 1))
    refused(folder, tmp_path, ConfigError, "names 'twice' twice")


def test_a_shard_that_changes_while_it_is_read_is_refused(folder, tmp_path):
    conversion = prepare(options(folder, tmp_path / "out"))
    os.utime(conversion.source.shards[0].path, (1, 1))
    with pytest.raises(CheckpointError, match="changed while it was read"):
        convert(conversion)
    assert left_behind(tmp_path) == ["hf"]


@pytest.mark.parametrize("output", ["hf", "."])
def test_an_output_that_holds_the_source_is_refused(folder, tmp_path, output):
    with pytest.raises(ConfigError, match=r"holds the source .*; name a new folder"):
        run(folder, tmp_path / output)
    assert left_behind(tmp_path) == ["hf"]


def test_folders_made_for_an_output_go_when_the_input_is_bad(folder, tmp_path):
    loose = Loose.load(folder)
    dtype, shape, data = loose.tensors["layers.0.attn.wkv.scale"]
    loose.tensors["layers.0.attn.wkv.scale"] = (dtype, shape, b"\xff" * len(data))
    shutil.rmtree(folder)
    loose.write(folder)
    with pytest.raises(CheckpointError, match="holds NaN"):
        run(folder, tmp_path / "new" / "deep" / "out")
    assert left_behind(tmp_path) == ["hf"]


def test_a_broken_index_is_refused(folder, tmp_path):
    (folder / INDEX_FILE).write_text("{")
    refused(folder, tmp_path, ConfigError, "can not be read as JSON")


def test_a_folder_without_weights_is_refused(folder, tmp_path):
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    refused(folder, tmp_path, CheckpointError, f"neither {INDEX_FILE} nor {SINGLE_FILE}")


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="is not a folder"):
        run(tmp_path / "nothing", tmp_path / "out")


def same_result(one, other):
    names = {p.name for p in one.iterdir()}
    assert names == {p.name for p in other.iterdir()}
    for name in names - {"config.json"}:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize("index", [False, True])
def test_one_file_with_or_without_index_gives_the_same_result(folder, tmp_path, index):
    loose = Loose.load(folder)
    loose.shards = dict.fromkeys(loose.shards, SINGLE_FILE)
    single = loose.write(tmp_path / "single", index=index)
    shutil.copyfile(folder / "generation_config.json", single / "generation_config.json")
    run(folder, tmp_path / "one")
    run(single, tmp_path / "two")
    same_result(tmp_path / "one", tmp_path / "two")


def test_a_model_prefix_is_stripped(folder, tmp_path):
    loose = Loose.load(folder)
    loose.tensors = {f"model.{n}": t for n, t in loose.tensors.items()}
    loose.shards = {f"model.{n}": s for n, s in loose.shards.items()}
    prefixed = loose.write(tmp_path / "prefixed")
    shutil.copyfile(folder / "generation_config.json", prefixed / "generation_config.json")
    run(folder, tmp_path / "one")
    run(prefixed, tmp_path / "two")
    same_result(tmp_path / "one", tmp_path / "two")
