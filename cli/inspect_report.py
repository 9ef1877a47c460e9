"""What `dsv4-trt inspect` finds out about a folder, as plain JSON data; reads headers, never weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4_trt.cli.inspect_bundle import bundle_report
from dsv4_trt.cli.inspect_parts import Report, model_report, tensor_report
from dsv4_trt.contract import CONFIG_FILE, GRAPH_FILE, MANIFEST_FILE
from dsv4_trt.errors import CheckpointError, ConfigError
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.rank_checkpoint import load_rank_checkpoint

if TYPE_CHECKING:
    from dsv4_trt.convert.source import Source

OFFICIAL, RANK, BUNDLE = "official checkpoint", "rank checkpoint", "engine bundle"


def kind_of(path: Path) -> str:
    """Which product `path` is, told by its files; raises `ConfigError` if it is none."""
    from dsv4_trt.json_fields import read_object

    if (path / GRAPH_FILE).is_file() and (path / MANIFEST_FILE).is_file():
        return BUNDLE
    if (path / CONFIG_FILE).is_file():
        config = read_object(path / CONFIG_FILE, "the config of a checkpoint")
        if config.has("format_version"):
            return RANK
        if config.has("model_type"):
            return OFFICIAL
    found = "is a folder with none of these" if path.is_dir() else "is not a folder"
    raise ConfigError(
        f"{path} {found}; expected an engine bundle ({GRAPH_FILE} and {MANIFEST_FILE}), a rank "
        f"checkpoint ({CONFIG_FILE} with 'format_version') or an official checkpoint "
        f"({CONFIG_FILE} with 'model_type')"
    )


def inspect(path: Path) -> Report:
    """Everything about `path`: kind, model, layers, parameters, files, tensors; graphs of a bundle.

    Raises `ConfigError`, `CheckpointError` or `BundleMismatch` when a file is not what it should be.
    """
    kind = kind_of(path)
    readers = {OFFICIAL: _official, RANK: _rank, BUNDLE: bundle_report}
    return {"kind": kind, "path": str(path), **readers[kind](path)}


def _official(path: Path) -> Report:
    from dsv4_trt.convert.config import load_model_spec
    from dsv4_trt.convert.layout import detect_layout
    from dsv4_trt.convert.source import open_source

    source = open_source(path)
    layout = detect_layout(source)
    spec = load_model_spec(path, layout.expert_dtype)
    drafter = _drafter(source, spec)
    counted = spec if drafter == "mtp" else replace(spec, num_nextn_predict_layers=0)
    return {
        **model_report(counted),
        "model": spec.to_json(),
        "storage": {
            "expert_dtype": layout.expert_dtype,
            "scale_dtype": str(layout.scale_dtype),
            "drafter": drafter,
        },
        **tensor_report((shard.path, shard.tensors) for shard in source.shards),
    }


def _drafter(source: Source, spec: ModelSpec) -> str:
    from dsv4_trt.convert.tensor_check import refuse_dspark

    if not any(name.startswith("mtp.") for name in source.tensors):
        return "none"
    try:
        refuse_dspark(source, spec)
    except CheckpointError:
        return "dspark"
    return "mtp"


def _rank(path: Path) -> Report:
    from dsv4_trt.safetensors_file import read_header

    checkpoint = load_rank_checkpoint(path)
    return {
        **model_report(checkpoint.spec),
        "mapping": checkpoint.config["mapping"],
        "storage": {
            "expert_dtype": checkpoint.spec.expert_dtype,
            "drafter": "mtp" if checkpoint.mtp else "none",
            "producer": checkpoint.config.get("producer"),
        },
        **tensor_report((file, read_header(file).tensors) for file in checkpoint.rank_files),
    }
