"""An official checkpoint on disk as a set of shards: every tensor is found exactly once.

Only the index and the headers are read. A leading `model.` of tensor names is stripped, as the official
converter does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dsv4_trt.errors import CheckpointError
from dsv4_trt.json_fields import read_object
from dsv4_trt.safetensors_file import SafetensorsFile, StoredTensor, read_header
from dsv4_trt.shown import is_plain, shown

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
PREFIX = "model."
SHOWN = 4  # names listed in one message


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint: its shards and, by official name, its tensors."""

    model_dir: Path
    shards: tuple[SafetensorsFile, ...]
    tensors: dict[str, StoredTensor]

    @property
    def nbytes(self) -> int:
        """Bytes of all shards."""
        return sum(shard.size for shard in self.shards)

    @property
    def paths(self) -> list[Path]:
        """The shard files."""
        return [shard.path for shard in self.shards]


def open_source(model_dir: Path) -> Source:
    """Find and read the headers of all shards.

    Raises `CheckpointError` for missing, damaged or contradicting files, naming file and tensor.
    """
    if not model_dir.is_dir():
        raise CheckpointError(f"{model_dir} is not a folder; expected a Hugging Face checkpoint")
    weight_map = _weight_map(model_dir)
    names = sorted(set(weight_map.values())) if weight_map else [SINGLE_FILE]
    missing = [name for name in names if not (model_dir / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{model_dir} lacks {len(missing)} of {len(names)} shards: {_shown(missing)}; "
            "fetch them into that folder"
        )
    shards = tuple(read_header(model_dir / name) for name in names)
    tensors = _collect(shards)
    if weight_map:
        _check_index(model_dir, weight_map, tensors)
    return Source(model_dir, shards, tensors)


def check_unchanged(source: Source) -> None:
    """Raise `CheckpointError` if a shard is not the file any more whose header was read."""
    for shard in source.shards:
        try:
            stat = shard.path.stat()
        except OSError as error:
            raise CheckpointError(
                f"{shard.path} went away while it was read ({error.strerror}); convert again"
            ) from error
        if (stat.st_size, stat.st_mtime_ns) != (shard.size, shard.mtime_ns):
            raise CheckpointError(
                f"{shard.path} changed while it was read; convert again once the checkpoint is complete"
            )


def _weight_map(model_dir: Path) -> dict[str, str]:
    """Shard file of each tensor by the index; empty when the checkpoint is one file without index."""
    index = model_dir / INDEX_FILE
    if not index.exists():
        if (model_dir / SINGLE_FILE).is_file():
            return {}
        raise CheckpointError(
            f"{model_dir} has neither {INDEX_FILE} nor {SINGLE_FILE}; "
            "expected a Hugging Face checkpoint in safetensors format"
        )
    weight_map = read_object(index, "the index of a sharded checkpoint").data.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} has no 'weight_map'; expected tensor name -> shard file")
    for tensor, shard in weight_map.items():
        if not is_plain(tensor):
            raise CheckpointError(
                f"{index} names a tensor {shown(tensor)}; expected a short printable name"
            )
        if not isinstance(shard, str) or not is_plain(shard) or os.path.basename(shard) != shard:
            raise CheckpointError(
                f"{index} puts tensor '{tensor}' into {shown(shard)}; "
                "expected a file name without folders"
            )
    return weight_map


def _collect(shards: tuple[SafetensorsFile, ...]) -> dict[str, StoredTensor]:
    tensors: dict[str, StoredTensor] = {}
    for shard in shards:
        for tensor in shard.tensors:
            name = tensor.name.removeprefix(PREFIX)
            if name in tensors:
                raise CheckpointError(
                    f"tensor '{name}' is in {tensors[name].path.name} and in {shard.path.name}; "
                    "expected every tensor once, remove the shard that does not belong"
                )
            tensors[name] = tensor
    return tensors


def _check_index(
    model_dir: Path, weight_map: dict[str, str], tensors: dict[str, StoredTensor]
) -> None:
    named: dict[str, str] = {}
    for full, shard in weight_map.items():
        name = full.removeprefix(PREFIX)
        if name in named:
            raise CheckpointError(
                f"{model_dir / INDEX_FILE} names tensor '{name}' with and without '{PREFIX}'; "
                "expected every tensor once"
            )
        named[name] = shard
    for name, shard in named.items():
        if name not in tensors:
            raise CheckpointError(
                f"{INDEX_FILE} says tensor '{name}' is in {shard}, whose header does not list it; "
                "index and shards are of different downloads, fetch both again"
            )
        if tensors[name].path.name != shard:
            raise CheckpointError(
                f"{INDEX_FILE} says tensor '{name}' is in {shard}, it is in "
                f"{tensors[name].path.name}; index and shards are of different downloads"
            )
    unnamed = sorted(set(tensors) - set(named))
    if unnamed:
        raise CheckpointError(
            f"{model_dir / INDEX_FILE} does not name {len(unnamed)} tensors that its shards hold: "
            f"{_shown(unnamed)}; index and shards are of different downloads"
        )


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
