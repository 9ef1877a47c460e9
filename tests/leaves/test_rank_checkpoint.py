"""A damaged rank file or rank checkpoint is a typed error that says what to do."""

from __future__ import annotations

import json
import struct

import pytest

from dsv4_trt.contract import BUNDLE_FORMAT, CHECKPOINT_FORMAT
from dsv4_trt.errors import BundleMismatch, CheckpointError
from dsv4_trt.identity import weights_identity
from dsv4_trt.presets import TINY
from dsv4_trt.rank_checkpoint import load_rank_checkpoint
from dsv4_trt.rank_tensors import LAYOUT_VERSION

CONFIG = {
    "format_version": CHECKPOINT_FORMAT,
    "layout_version": LAYOUT_VERSION,
    "model": TINY.to_json(),
    "mapping": {"tp_size": 1, "moe_ep_size": 1},
    "mtp": True,
}
MANIFEST = {"format_version": CHECKPOINT_FORMAT, "ranks": [{"bytes": 5}]}


def with_header(header):
    return struct.pack("<Q", len(header)) + header


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01",
        b"\xff" * 200,
        struct.pack("<Q", 1 << 40),
        with_header(b"[1]"),
        with_header(b"\xff\xfe"),
        with_header(b'{"a": {"dtype": "F32", "shape": [1]}}'),
        with_header(
            b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 1180591620717411303424]}}'
        ),
    ],
)
def test_what_is_no_safetensors_file_has_no_identity(tmp_path, content):
    (tmp_path / "rank0.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"rank0\.safetensors.*again"):
        weights_identity(tmp_path / "rank0.safetensors")


def write(folder, config=CONFIG, manifest=MANIFEST):
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "rank0.safetensors").write_bytes(b"12345")
    return folder


def test_a_whole_folder_is_read(tmp_path):
    found = load_rank_checkpoint(write(tmp_path))
    assert (found.spec, found.mtp) == (TINY, True)
    assert found.rank_files == (tmp_path / "rank0.safetensors",)


@pytest.mark.parametrize(
    ("config", "manifest"),
    [
        ({"model": None}, {}),
        ({"model": 3}, {}),
        ({"mapping": [1, 1]}, {}),
        ({"mapping": {"tp_size": "2", "moe_ep_size": 1}}, {}),
        ({"mapping": {"tp_size": 1}}, {}),
        ({}, {"ranks": 1}),
        ({}, {"ranks": [{}]}),
        ({}, {"ranks": [{"bytes": 6}]}),
        ({}, {"ranks": []}),
    ],
)
def test_a_damaged_field_is_a_typed_error(tmp_path, config, manifest):
    with pytest.raises(CheckpointError, match="convert again"):
        load_rank_checkpoint(write(tmp_path, CONFIG | config, MANIFEST | manifest))


@pytest.mark.parametrize("key", ["model", "mapping", "mtp"])
def test_a_missing_field_is_named(tmp_path, key):
    config = {name: value for name, value in CONFIG.items() if name != key}
    with pytest.raises(CheckpointError, match=key):
        load_rank_checkpoint(write(tmp_path, config))


def test_an_engine_bundle_is_named_as_one(tmp_path):
    bundle = {"format_version": BUNDLE_FORMAT, "pretrained_config": CONFIG, "build_config": {}}
    with pytest.raises(CheckpointError, match="is an engine bundle; expected the rank checkpoint"):
        load_rank_checkpoint(write(tmp_path, config=bundle))


@pytest.mark.parametrize("what", ["config", "manifest"])
def test_another_format_version_is_refused(tmp_path, what):
    changed = {what: (CONFIG if what == "config" else MANIFEST) | {"format_version": 99}}
    with pytest.raises(BundleMismatch, match="format version 99"):
        load_rank_checkpoint(write(tmp_path, **changed))
