"""Bundles open only whole, at a known version, and with the weights they were built from."""

import errno
import hashlib
import json
import os
import shutil

import pytest

from dsv4_trt.contract import BuildSpec
from dsv4_trt.errors import (
    BuildError,
    BundleMismatch,
    CapacityError,
    CheckpointError,
    ConfigError,
)
from dsv4_trt.identity import weights_identity
from dsv4_trt.kv_plan import plan_for_sequences
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.open import open_engine
from dsv4_trt.safetensors_file import read_header
from tests.workshop import run_cli


@pytest.fixture
def bundle(workshop, tiny_a, tmp_path):
    """A copy of a bundle that a test may damage; its weights are links to the checkpoint's."""
    source = workshop.bundle_dir(tiny_a)
    shutil.copytree(source, tmp_path / "engine", copy_function=os.link)
    return tmp_path / "engine"


def rewrite(path, **changes):
    """Replace keys of a JSON file without touching what is linked to it."""
    data = json.loads(path.read_text()) | changes
    path.unlink()
    path.write_text(json.dumps(data))


def test_a_bundle_describes_itself(bundle):
    opened = open_bundle(bundle)
    assert opened.precision.name == "serving"
    assert opened.spec.compress_ratios == (0, 4, 128, 4)
    assert opened.mtp is not None
    assert opened.encoder_revision == "v4-preview"
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert set(manifest["files"]) == {"config.json", "graph.json", "generation_config.json"}


@pytest.mark.parametrize("name", ["manifest.json", "config.json", "graph.json"])
def test_a_missing_file_is_named(bundle, name):
    (bundle / name).unlink()
    with pytest.raises((BundleMismatch, ConfigError), match=name):
        open_bundle(bundle)


@pytest.mark.parametrize("name", ["config.json", "graph.json"])
def test_a_changed_file_is_refused(bundle, name):
    rewrite(bundle / name, extra=1)
    with pytest.raises(BundleMismatch, match=rf"{name} was changed after the bundle was built"):
        open_bundle(bundle)


def test_another_format_version_is_refused_by_name(bundle):
    rewrite(bundle / "manifest.json", format_version=99)
    with pytest.raises(BundleMismatch, match=r"engine bundle .* has format version 99"):
        open_bundle(bundle)


def test_a_damaged_manifest_is_a_typed_error(bundle):
    rewrite(bundle / "manifest.json", ranks=[{"file": 3}])
    with pytest.raises(BundleMismatch, match="damaged"):
        open_bundle(bundle)
    (bundle / "manifest.json").unlink()
    (bundle / "manifest.json").write_text("[1]")
    with pytest.raises(BundleMismatch, match="damaged"):
        open_bundle(bundle)


def test_an_unknown_precision_is_refused(bundle):
    with pytest.raises(ConfigError, match=r"precision 'fp64' is unknown; .* serving, exact"):
        open_bundle(bundle, precision="fp64")


def test_a_rank_checkpoint_is_not_a_bundle(workshop, tiny_a):
    workshop.bundle_dir(tiny_a)
    with pytest.raises(ConfigError, match=r"no graph.json; expected an engine bundle"):
        open_bundle(next(workshop.root.glob("*-1-1.ckpt")))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"op": "compress_twice"}, "no op 'compress_twice'"),
        ({"attrs": {"eps": 1e-6, "window": 8}}, r"attributes \['eps', 'window'\]; expected"),
        ({"inputs": {}}, "input"),
    ],
)
def test_a_graph_for_another_op_table_is_refused(bundle, node, message):
    """The digest is that of the file, so the bundle opens; the program is another than built it."""
    graph = json.loads((bundle / "graph.json").read_text())
    graph["graphs"]["serving"]["trunk"]["nodes"][3] |= node
    rewrite(bundle / "graph.json", **graph)
    digest = hashlib.sha256((bundle / "graph.json").read_bytes()).hexdigest()
    files = json.loads((bundle / "manifest.json").read_text())["files"]
    rewrite(bundle / "manifest.json", files=files | {"graph.json": digest})
    opened = open_bundle(bundle)
    with pytest.raises(BundleMismatch, match=rf"another version of dsv4-trt: .*{message}"):
        open_engine(opened, plan_for_sequences(opened.layout, [100]), device="cpu")


def test_pools_of_another_layout_are_refused(bundle):
    plan = plan_for_sequences(open_bundle(bundle).layout, [100])
    with pytest.raises(BundleMismatch, match=r"another layout .* at precision 'exact'"):
        open_engine(open_bundle(bundle, precision="exact"), plan, device="cpu")


def flip_byte(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.unlink()
    path.write_bytes(data)


def test_other_weights_are_refused(bundle):
    rank = bundle / "weights" / "rank0.safetensors"
    flip_byte(rank, rank.stat().st_size - 1)
    with pytest.raises(BundleMismatch, match=r"other weights than the bundle .* built from"):
        open_bundle(bundle)


def test_weights_of_another_size_are_refused(bundle):
    rank = bundle / "weights" / "rank0.safetensors"
    data = rank.read_bytes()
    rank.unlink()
    rank.write_bytes(data[:-7])
    with pytest.raises(BundleMismatch, match=r"bytes, the bundle .* was built for"):
        open_bundle(bundle)


def test_moved_weights_are_found_where_the_user_says(bundle, tmp_path):
    moved = tmp_path / "moved"
    (bundle / "weights").rename(moved)
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["ranks"][0]["path"] = str(tmp_path / "gone" / "rank0.safetensors")
    rewrite(bundle / "manifest.json", ranks=manifest["ranks"])
    with pytest.raises(BundleMismatch, match="--checkpoint_dir"):
        open_bundle(bundle)
    opened = open_bundle(bundle, checkpoint_dir=moved)
    assert opened.rank_files == (moved / "rank0.safetensors",)


def test_identity_sees_the_first_and_last_byte_of_every_tensor(bundle, tmp_path):
    rank = bundle / "weights" / "rank0.safetensors"
    copy = tmp_path / "copy.safetensors"
    shutil.copyfile(rank, copy)
    before = weights_identity(copy)
    assert before == weights_identity(rank)
    header = int.from_bytes(copy.read_bytes()[:8], "little")
    tensors = json.loads(copy.read_bytes()[8 : 8 + header])
    tensors.pop("__metadata__", None)
    for name in list(tensors)[:3]:
        start, end = tensors[name]["data_offsets"]
        for offset in (start, end - 1):
            flip_byte(copy, 8 + header + offset)
            assert weights_identity(copy) != before
            flip_byte(copy, 8 + header + offset)


def test_build_refuses_what_it_can_not_build(workshop, tiny_a, tmp_path):
    workshop.bundle_dir(tiny_a)
    checkpoint = next(workshop.root.glob("*-1-1.ckpt"))
    build = ("build", "--checkpoint_dir", checkpoint, "--output_dir", tmp_path / "engine")
    with pytest.raises(BuildError, match=r"max_seq_len 2000000 is above .* 1048576"):
        run_cli(*build, "--max_seq_len", 2000000)
    with pytest.raises(ConfigError, match=r"max_num_tokens 4 is below max_batch_size 64"):
        run_cli(*build, "--max_num_tokens", 4)
    assert list(tmp_path.iterdir()) == []
    run_cli(*build)
    with pytest.raises(ConfigError, match="already exists"):
        run_cli(*build)


def copied_checkpoint(workshop, tiny_a, folder):
    workshop.bundle_dir(tiny_a)
    shutil.copytree(next(workshop.root.glob("*-1-1.ckpt")), folder, copy_function=os.link)
    return ("build", "--checkpoint_dir", folder, "--output_dir", folder.with_name("engine"))


def test_rank_files_of_another_conversion_are_not_built(workshop, tiny_a, tmp_path):
    """Names, shapes and sizes are the same; the norms are not."""
    build = copied_checkpoint(workshop, tiny_a, tmp_path / "ckpt")
    rank = tmp_path / "ckpt" / "rank0.safetensors"
    norm = next(t for t in read_header(rank).tensors if t.name == "norm.weight")
    flip_byte(rank, norm.start)
    with pytest.raises(CheckpointError, match=r"'norm.weight' of .*rank0.safetensors has other"):
        run_cli(*build)
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hash_layers": 1}, r"'layers.1.ffn.gate.bias' is missing in .* and F32 \[8\] by"),
        ({"q_lora_rank": 256}, r"is BF16 \[128\] in .* and BF16 \[256\] by config.json"),
    ],
)
def test_a_config_that_the_rank_files_do_not_fit_is_not_built(
    workshop, tiny_a, tmp_path, change, message
):
    build = copied_checkpoint(workshop, tiny_a, tmp_path / "ckpt")
    config = json.loads((tmp_path / "ckpt" / "config.json").read_text())
    rewrite(tmp_path / "ckpt" / "config.json", model=config["model"] | change)
    with pytest.raises(CheckpointError, match=message):
        run_cli(*build)


def test_an_interrupted_build_leaves_nothing(workshop, tiny_a, tmp_path, monkeypatch):
    workshop.bundle_dir(tiny_a)
    checkpoint = next(workshop.root.glob("*-1-1.ckpt"))

    def interrupt(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("dsv4_trt.builder.bundle.weights_identity", interrupt)
    with pytest.raises((KeyboardInterrupt, AssertionError)):
        run_cli("build", "--checkpoint_dir", checkpoint, "--output_dir", tmp_path / "engine")
    assert list(tmp_path.iterdir()) == []


def test_builds_of_one_bundle_at_once_do_not_mix(workshop, tiny_a, tmp_path, monkeypatch):
    """A second build that runs and ends inside the first: one bundle, whole, and one refusal."""
    workshop.bundle_dir(tiny_a)
    checkpoint = next(workshop.root.glob("*-1-1.ckpt"))
    build = ("build", "--checkpoint_dir", checkpoint, "--output_dir", tmp_path / "engine")

    def second_build(file):
        monkeypatch.setattr("dsv4_trt.builder.bundle.weights_identity", weights_identity)
        run_cli(*build, "--max_seq_len", 2000)
        return weights_identity(file)

    monkeypatch.setattr("dsv4_trt.builder.bundle.weights_identity", second_build)
    with pytest.raises(ConfigError, match="filled by another program"):
        run_cli(*build, "--max_seq_len", 1000)
    assert [path.name for path in tmp_path.iterdir()] == ["engine"]
    assert open_bundle(tmp_path / "engine").build.max_seq_len == 2000


def test_a_full_disk_is_named_and_leaves_nothing(workshop, tiny_a, tmp_path, monkeypatch):
    workshop.bundle_dir(tiny_a)
    checkpoint = next(workshop.root.glob("*-1-1.ckpt"))

    def fill(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("dsv4_trt.builder.bundle.weights_identity", fill)
    with pytest.raises(CapacityError, match=rf"disk of {tmp_path} is full, engine was not built"):
        run_cli("build", "--checkpoint_dir", checkpoint, "--output_dir", tmp_path / "engine")
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_can_take_the_place_of_an_empty_folder(workshop, tiny_a, tmp_path, monkeypatch):
    workshop.bundle_dir(tiny_a)
    build = ("build", "--checkpoint_dir", next(workshop.root.glob("*-1-1.ckpt")), "--output_dir")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run_cli(*build, ".")
    assert open_bundle(tmp_path / "here").build == BuildSpec()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is a link"):
        run_cli(*build, tmp_path / "link")


def test_rank_files_that_are_links_are_linked_to_where_they_lead(workshop, tiny_a, tmp_path):
    """A checkpoint of relative links, as a download cache lays it out; the bundle is then moved."""
    workshop.bundle_dir(tiny_a)
    source = next(workshop.root.glob("*-1-1.ckpt"))
    shutil.copytree(source, tmp_path / "store", copy_function=os.link)
    shutil.copytree(source, tmp_path / "ckpt", ignore=shutil.ignore_patterns("rank*"))
    (tmp_path / "ckpt" / "rank0.safetensors").symlink_to("../store/rank0.safetensors")
    run_cli("build", "--checkpoint_dir", tmp_path / "ckpt", "--output_dir", tmp_path / "engine")
    (tmp_path / "deep").mkdir()
    moved = (tmp_path / "engine").rename(tmp_path / "deep" / "engine")
    weights = moved / "weights" / "rank0.safetensors"
    assert weights.is_file()
    assert not weights.is_symlink()
    assert open_bundle(moved).rank_files == (weights,)
