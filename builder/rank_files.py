"""Holds rank files against what their checkpoint says of them, as far as that costs no time.

Names, types and shapes of all tensors must be those of the model; the bytes of small ones, norms among
them, those of the manifest. A file of another conversion can have the same size and differ in these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from dsv4_trt.contract import CONFIG_FILE, MANIFEST_FILE
from dsv4_trt.errors import CheckpointError
from dsv4_trt.rank_checkpoint import RankCheckpoint
from dsv4_trt.rank_tensors import rank_tensors
from dsv4_trt.safetensors_file import StoredTensor, read_header

SMALL_BYTES = 1 << 14  # of a tensor that is read whole


def check_rank_files(checkpoint: RankCheckpoint) -> None:
    """Raise `CheckpointError` for a rank file that is not the one `checkpoint` describes."""
    listed = rank_tensors(checkpoint.spec, checkpoint.mapping, mtp=checkpoint.mtp)
    expected = {tensor.name: (tensor.dtype, tensor.shape) for tensor in listed}
    for file, entry in zip(checkpoint.rank_files, checkpoint.manifest["ranks"], strict=True):
        tensors = read_header(file).tensors
        found = {tensor.name: (tensor.dtype, tensor.shape) for tensor in tensors}
        for name in sorted(expected.keys() | found.keys()):
            if expected.get(name) != found.get(name):
                raise CheckpointError(
                    f"tensor '{name}' is {_shown(found.get(name))} in {file} and "
                    f"{_shown(expected.get(name))} by {CONFIG_FILE}; convert again"
                )
        _check_bytes(file, tensors, entry.get("tensors", {}))


def _check_bytes(file: Path, tensors: Iterable[StoredTensor], digests: Mapping[str, str]) -> None:
    with file.open("rb") as data:
        for tensor in tensors:
            if tensor.nbytes > SMALL_BYTES:
                continue
            data.seek(tensor.start)
            if hashlib.sha256(data.read(tensor.nbytes)).hexdigest() != digests.get(tensor.name):
                raise CheckpointError(
                    f"tensor '{tensor.name}' of {file} has other bytes than {MANIFEST_FILE} says: the "
                    "file is damaged or from another conversion; convert again"
                )


def _shown(tensor: tuple[str, tuple[int, ...]] | None) -> str:
    return "missing" if tensor is None else f"{tensor[0]} {list(tensor[1])}"
