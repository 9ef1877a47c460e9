"""Random checkpoints in the official format: for demos, tests and benchmarks without the real weights."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dsv4_trt.contract import CONFIG_FILE, GENERATION_CONFIG_FILE
from dsv4_trt.convert.hub_config import generation_config, hub_config
from dsv4_trt.convert.names import MTP_COPIES, official_tensors
from dsv4_trt.convert.random_checkpoint_shards import (
    INDEX_FILE,
    Shard,
    index_json,
    plan_shards,
    write_shard,
)
from dsv4_trt.convert.random_checkpoint_values import draw
from dsv4_trt.dtypes import DType
from dsv4_trt.errors import CapacityError, ConfigError
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.rank_tensors import TensorSpec

SHARD_BYTES = 4 << 30
HEADER_BYTES = 256  # of a tensor in shard header and index, at most


def checkpoint_shards(
    spec: ModelSpec,
    *,
    scale_dtype: DType = DType.F8_E8M0,
    mtp: bool = True,
    shard_bytes: int = SHARD_BYTES,
    base_copies: bool = False,
) -> list[Shard]:
    """The files that `write_random_checkpoint` writes for the same arguments."""
    if scale_dtype not in (DType.F8_E8M0, DType.F32):
        raise ConfigError(f"scale_dtype is {scale_dtype}; expected F8_E8M0 or F32")
    if shard_bytes < 1:
        raise ConfigError(f"shard_bytes is {shard_bytes}; expected at least 1")
    if base_copies and not mtp:
        raise ConfigError("base_copies is set without mtp; expected mtp, whose copies they are")
    tensors = list(official_tensors(spec, scale_dtype=scale_dtype, mtp=mtp))
    if base_copies:
        shared = {tensor.name: tensor for tensor in tensors}
        tensors += [replace(shared[source], name=copy) for copy, source in MTP_COPIES.items()]
    return plan_shards(tensors, shard_bytes)


def write_random_checkpoint(
    spec: ModelSpec,
    output_dir: Path,
    *,
    seed: int,
    scale_dtype: DType = DType.F8_E8M0,
    mtp: bool = True,
    shard_bytes: int = SHARD_BYTES,
    base_copies: bool = False,
    extra_files: Mapping[str, Path] | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Shard]:
    """Write config, index and shards; `output_dir` appears complete or not at all.

    Weights depend on `seed`, tensor names and dtypes alone, not on how they are split. `scale_dtype`
    F32 with `base_copies` and a spec of fp8 experts is the Base layout. `extra_files` (name to source)
    are copied in; `progress` is told the bytes of each piece written.

    Raises:
        ConfigError: an argument is illegal, or `output_dir` or the partial folder of a killed run exists.
        CapacityError: the disk has too little room; nothing is left behind.
    """
    if seed < 0:
        raise ConfigError(f"seed is {seed}; expected 0 or more")
    shards = checkpoint_shards(
        spec,
        scale_dtype=scale_dtype,
        mtp=mtp,
        shard_bytes=shard_bytes,
        base_copies=base_copies,
    )
    extra = extra_files or {}
    spec = replace(spec, num_nextn_predict_layers=int(mtp))
    need = sum(shard.nbytes + HEADER_BYTES * len(shard.tensors) for shard in shards)
    need += sum(path.stat().st_size for path in extra.values())

    def values(tensor: TensorSpec) -> Iterator[NDArray[Any]]:
        shared = replace(tensor, name=MTP_COPIES.get(tensor.name, tensor.name))
        return draw(shared, spec, seed)

    with _published(output_dir, need) as folder:
        for shard in shards:
            write_shard(folder, shard, values, progress or (lambda done: None))
        _write_json(folder / INDEX_FILE, index_json(shards))
        _write_json(folder / CONFIG_FILE, hub_config(spec))
        _write_json(folder / GENERATION_CONFIG_FILE, generation_config(spec))
        for name, path in extra.items():
            shutil.copyfile(path, folder / name)
    return shards


@contextmanager
def _published(output_dir: Path, need: int) -> Iterator[Path]:
    """A folder beside `output_dir` that takes its name at the end, or goes away on any error."""
    if output_dir.exists() or output_dir.is_symlink():
        raise ConfigError(f"output_dir {output_dir} already exists; remove it or name another")
    home = next(path for path in output_dir.absolute().parents if path.exists())
    free = shutil.disk_usage(home).free
    if free < need:
        raise CapacityError(
            f"{output_dir} needs {need / 1e9:.2f} GB, the disk of {home} has {free / 1e9:.2f} GB "
            "free; free some space or choose another disk"
        )
    partial = _make_partial(output_dir)
    try:
        yield partial
        partial.rename(output_dir)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CapacityError(
                f"the disk of {home} filled up while writing {output_dir}, which was removed; "
                f"{need / 1e9:.2f} GB are needed"
            ) from error
        raise


def _make_partial(output_dir: Path) -> Path:
    partial = output_dir.with_name(f".{output_dir.name}.partial")
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        if not partial.exists():
            raise ConfigError(f"output_dir {output_dir} can not be created: {error}") from error
        raise ConfigError(
            f"{partial} exists: another run is writing it, or one was killed; "
            "wait for it, or delete that folder and run again"
        ) from None
    return partial


def _write_json(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
