"""Writes an engine bundle: graphs, config, manifest, tokenizer files and links to the weights.

The bundle appears whole or not at all: it is written beside its final place, under a name of its own, and
renamed. Weights are hard links where the file system allows, else the manifest records where they are.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsv4_trt import __version__
from dsv4_trt.builder.model.networks import mtp, trunk
from dsv4_trt.builder.network import Network
from dsv4_trt.builder.plans import PlanOptions, build_plans, check_installed
from dsv4_trt.builder.rank_files import check_rank_files
from dsv4_trt.contract import (
    BUNDLE_FORMAT,
    CONFIG_FILE,
    ENCODER_REVISION,
    GENERATION_CONFIG_FILE,
    GRAPH_FILE,
    GRAPH_FORMAT,
    MANIFEST_FILE,
    TOKENIZER_FILES,
    WEIGHTS_DIR,
    BuildSpec,
)
from dsv4_trt.convert.staging import check_output
from dsv4_trt.errors import BuildError, CapacityError, ConfigError
from dsv4_trt.graph import Graph
from dsv4_trt.identity import weights_identity
from dsv4_trt.kv_layout import KvLayout, solve
from dsv4_trt.plan_record import BuildRecord
from dsv4_trt.precision import Precision
from dsv4_trt.rank_checkpoint import RankCheckpoint
from dsv4_trt.targets import TENSORRT, default_target


def build_bundle(
    checkpoint: RankCheckpoint,
    output_dir: Path,
    build: BuildSpec,
    plan_options: PlanOptions | None = None,
) -> BuildRecord | None:
    """Build the engine bundle `output_dir` for a rank checkpoint; returns what is known of its plans.

    Raises `ConfigError` for illegal build options or an output that exists and `BuildError` if they do
    not suit the checkpoint or TensorRT, `CheckpointError` for rank files that are not its own.
    """
    plan_options = plan_options or PlanOptions()
    build = replace(build, target=build.target or default_target(build.engine))
    check_output(output_dir)
    check_build(checkpoint, build)
    plan_options.check(build.engine)
    check_installed(build.engine)
    check_rank_files(checkpoint)
    place = output_dir.absolute()
    partial = _partial(place)
    try:
        _write_json(partial / GRAPH_FILE, _graph_json(checkpoint, build))
        record = _plans(checkpoint, build, partial, plan_options)
        if record is not None:
            build = replace(build, target=record.target)
        _write_json(partial / CONFIG_FILE, _config_json(checkpoint, build))
        for name in (*TOKENIZER_FILES, GENERATION_CONFIG_FILE):
            if (checkpoint.path / name).exists():
                shutil.copyfile(checkpoint.path / name, partial / name)
        digests = {file.name: _sha256(file) for file in sorted(partial.iterdir())}
        ranks = _link_weights(checkpoint, partial / WEIGHTS_DIR)
        _write_json(partial / MANIFEST_FILE, _manifest_json(digests, ranks))
        partial.rename(place)  # replaces an empty folder
        return record
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            _explain(error, place)
        raise


def _partial(place: Path) -> Path:
    """A new folder beside `place`, which becomes it when all is in there."""
    partial = place.with_name(f".{place.name}.{secrets.token_hex(4)}.partial")
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        _explain(error, place)
        raise ConfigError(
            f"output_dir {place} can not be made: {error.strerror}; name another"
        ) from error
    return partial


def _explain(error: OSError, place: Path) -> None:
    """Raise what `error` means for a bundle that was to appear at `place`, where that is known."""
    if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
        raise ConfigError(
            f"output_dir {place} was filled by another program while this build ran; name another"
        ) from error
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise CapacityError(
            f"the disk of {place.parent} is full, {place.name} was not built; free some space or "
            "choose another disk"
        ) from error


def check_build(checkpoint: RankCheckpoint, build: BuildSpec) -> None:
    """Raise `ConfigError` or `BuildError` unless a checkpoint can be built like this."""
    build.check()
    if build.mtp and not checkpoint.mtp:
        raise BuildError(
            f"{checkpoint.path} holds no MTP block; build with --no-mtp, or convert with --mtp keep"
        )
    if build.max_seq_len > checkpoint.spec.max_position_embeddings:
        raise BuildError(
            f"max_seq_len {build.max_seq_len} is above the model's max_position_embeddings "
            f"{checkpoint.spec.max_position_embeddings}"
        )


def serving_graphs(
    checkpoint: RankCheckpoint, build: BuildSpec
) -> tuple[dict[str, Graph], KvLayout]:
    """What plans are built of: the graphs at the official precision, and their KV layout."""
    precision = _official(build)
    graphs = _networks(checkpoint, build, precision)
    return graphs, solve(checkpoint.spec, precision.kv, precision.indexer, mtp=build.mtp)


def _official(build: BuildSpec) -> Precision:
    return Precision.official(kv=build.kv_cache_dtype, indexer=build.indexer_cache_dtype)


def _plans(
    checkpoint: RankCheckpoint, build: BuildSpec, folder: Path, options: PlanOptions
) -> BuildRecord | None:
    if build.engine not in TENSORRT:
        return None
    graphs, layout = serving_graphs(checkpoint, build)
    ranks = checkpoint.mapping.world_size
    return build_plans([*graphs.values()], build, layout, folder, ranks, options)


def _graph_json(checkpoint: RankCheckpoint, build: BuildSpec) -> dict[str, Any]:
    official = _official(build)
    graphs: dict[str, dict[str, Any]] = {}
    for precision in (official, Precision.exact()):
        parts = _networks(checkpoint, build, precision)
        graphs[precision.name] = {
            "precision": precision.to_json(),
            **{part: graph.to_json() for part, graph in parts.items()},
        }
    return {"format_version": GRAPH_FORMAT, "graphs": graphs}


def _networks(
    checkpoint: RankCheckpoint, build: BuildSpec, precision: Precision
) -> dict[str, Graph]:
    """The graphs of one precision: the trunk, and the MTP block where it is built."""
    spec, mapping = checkpoint.spec, checkpoint.mapping
    layout = solve(spec, precision.kv, precision.indexer, mtp=build.mtp)
    graphs = {"trunk": trunk(Network("trunk", spec, mapping, precision, layout))}
    if build.mtp:
        graphs["mtp"] = mtp(Network("mtp", spec, mapping, precision, layout))
    return graphs


def _config_json(checkpoint: RankCheckpoint, build: BuildSpec) -> dict[str, Any]:
    return {
        "version": __version__,
        "format_version": BUNDLE_FORMAT,
        "pretrained_config": checkpoint.config,
        "build_config": build.to_json(),
    }


def _manifest_json(digests: dict[str, str], ranks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "format_version": BUNDLE_FORMAT,
        "encoder_revision": ENCODER_REVISION,
        "files": digests,
        "ranks": ranks,
    }


def _link_weights(checkpoint: RankCheckpoint, folder: Path) -> list[dict[str, Any]]:
    folder.mkdir()
    ranks = []
    for file in checkpoint.rank_files:
        try:
            os.link(file.resolve(), folder / file.name)  # a link to a link would not survive a move
            linked = True
        except OSError:  # another file system, or one without hard links
            linked = False
        ranks.append(
            {
                "file": file.name,
                "bytes": file.stat().st_size,
                "identity": weights_identity(file),
                "linked": linked,
                "path": str(file.resolve()),
            }
        )
    return ranks


def _write_json(path: Path, data: dict[str, Any]) -> None:
    indent = None if path.name == GRAPH_FILE else 2
    path.write_text(json.dumps(data, indent=indent) + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
