"""Reading a rank checkpoint's folder: config, mapping and rank files, checked as far as names and sizes go.

`convert` writes the folder, builder and runtime read it. Tensor bytes are not touched here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsv4_trt.contract import (
    CHECKPOINT_FORMAT,
    CONFIG_FILE,
    MANIFEST_FILE,
    check_format,
    rank_file,
)
from dsv4_trt.errors import CheckpointError
from dsv4_trt.mapping import Mapping
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.rank_tensors import LAYOUT_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCheckpoint:
    """One converted checkpoint on disk."""

    path: Path
    spec: ModelSpec
    mapping: Mapping
    mtp: bool  # whether the rank files hold the MTP block
    config: dict[str, Any]  # config.json as it is
    manifest: dict[str, Any]  # manifest.json as it is: bytes and digests per rank
    rank_files: tuple[Path, ...]  # by rank


def load_rank_checkpoint(path: Path) -> RankCheckpoint:
    """Read and check the folder `path`.

    Raises `CheckpointError` for a missing, damaged or truncated file and `BundleMismatch` for
    another format or layout version.
    """
    try:
        return _load(path)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"a file of rank checkpoint {path} is damaged ({type(error).__name__}: {error}); "
            "convert again"
        ) from error


def _load(path: Path) -> RankCheckpoint:
    config = _read_json(path / CONFIG_FILE)
    if "pretrained_config" in config:
        raise CheckpointError(
            f"{path} is an engine bundle; expected the rank checkpoint it was built from, the "
            "output of `dsv4-trt convert`"
        )
    if "format_version" not in config:
        raise CheckpointError(
            f"{path / CONFIG_FILE} has no format_version, so it is not a rank checkpoint; "
            "expected the output of `dsv4-trt convert`"
        )
    check_format(f"rank checkpoint {path}", config["format_version"], CHECKPOINT_FORMAT)
    check_format(f"weight layout of {path}", config.get("layout_version"), LAYOUT_VERSION)
    spec, split = ModelSpec.from_json(config["model"]), config["mapping"]
    mapping = Mapping(tp_size=split["tp_size"], moe_ep_size=split["moe_ep_size"])
    mapping.check(spec)
    manifest = _read_json(path / MANIFEST_FILE)
    check_format(f"manifest of {path}", manifest.get("format_version"), CHECKPOINT_FORMAT)
    files = tuple(path / rank_file(rank) for rank in range(mapping.world_size))
    ranks = manifest["ranks"]
    if len(ranks) != len(files):
        raise CheckpointError(
            f"{path / MANIFEST_FILE} lists {len(ranks)} ranks, {CONFIG_FILE} says {len(files)}; "
            "convert again"
        )
    for file, entry in zip(files, ranks, strict=True):
        _check_size(file, entry["bytes"])
    return RankCheckpoint(
        path=path,
        spec=spec,
        mapping=mapping,
        mtp=config["mtp"],
        config=config,
        manifest=manifest,
        rank_files=files,
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} does not exist; expected a rank checkpoint written by `dsv4-trt convert`"
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} can not be read as JSON: {error}; convert again") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} holds a {type(data).__name__}, expected an object")
    return data


def _check_size(file: Path, expected: int) -> None:
    try:
        found = file.stat().st_size
    except FileNotFoundError:
        raise CheckpointError(
            f"rank file {file} is missing; copy it from where it was converted or convert again"
        ) from None
    if found != expected:
        raise CheckpointError(
            f"rank file {file} has {found} bytes, the manifest says {expected}; "
            "it was cut short or changed, convert again"
        )
