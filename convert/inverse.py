"""Undoes changes of format and sharding: official tensors back from rank files.

Sharding then gathering is the identity: no weight is lost or misplaced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dsv4_trt.convert import codecs
from dsv4_trt.convert.codecs import Bytes
from dsv4_trt.convert.layout import SourceLayout
from dsv4_trt.convert.names import official_tensors
from dsv4_trt.convert.plan import Piece, Plan, Transform, matrix_shape
from dsv4_trt.convert.shard_reader import ShardReader, open_shards
from dsv4_trt.dtypes import DType
from dsv4_trt.errors import CheckpointError
from dsv4_trt.rank_checkpoint import RankCheckpoint
from dsv4_trt.rank_tensors import TensorSpec
from dsv4_trt.safetensors_file import StoredTensor, read_header


def invert(transform: Transform, data: Bytes) -> Bytes:
    """Source bytes of result bytes; both flat."""
    match transform:
        case Transform.COPY | Transform.E8M0:
            return data
        case Transform.F32_TO_E8M0:
            return codecs.e8m0_to_f32(data).view(np.uint8)
        case Transform.EXPERT_IDS:
            return data.view(np.int32).astype(np.int64).view(np.uint8)
        case Transform.FP4_TO_FP8 | Transform.FP4_SCALES:
            raise ValueError(f"{transform} keeps values, not bytes; it has no inverse")


@dataclass(frozen=True, slots=True)
class _Place:
    stored: StoredTensor
    offset: int  # byte in the rank tensor
    piece: Piece


def gather(checkpoint: RankCheckpoint) -> Iterator[tuple[TensorSpec, Bytes]]:
    """Every official tensor of a rank checkpoint with its bytes, one at a time.

    The layout is that of the converted weights: experts that were made fp8 come back as fp8.
    Raises `CheckpointError` where ranks that hold the same weight disagree, or hold none of it.
    """
    plan = _identity_plan(checkpoint)
    places = _places(checkpoint, plan)
    with open_shards(checkpoint.rank_files) as reader:
        for tensor in plan.official.values():
            yield tensor, _assemble(tensor, places[tensor.name], reader)


def _identity_plan(checkpoint: RankCheckpoint) -> Plan:
    spec = checkpoint.spec
    scale_dtype = DType(checkpoint.config["source"]["scale_dtype"])
    official = official_tensors(spec, scale_dtype=scale_dtype, mtp=checkpoint.mtp)
    return Plan.make(
        spec,
        SourceLayout(spec.expert_dtype, scale_dtype),
        checkpoint.mapping,
        {tensor.name: tensor for tensor in official},
        mtp=checkpoint.mtp,
    )


def _places(checkpoint: RankCheckpoint, plan: Plan) -> dict[str, list[_Place]]:
    places: dict[str, list[_Place]] = defaultdict(list)
    for rank, path in enumerate(checkpoint.rank_files):
        for stored in read_header(path).tensors:
            offset = 0
            for piece in plan.pieces(stored.name, rank):
                places[piece.source].append(_Place(stored, offset, piece))
                offset += piece.nbytes
    return places


def _assemble(tensor: TensorSpec, places: list[_Place], reader: ShardReader) -> Bytes:
    rows, cols = matrix_shape(tensor)
    size = tensor.dtype.itemsize
    whole = np.zeros((rows, cols * size), np.uint8)
    filled = np.zeros((rows, cols), np.bool_)
    for place in places:
        data = reader.read(place.stored, place.offset, place.piece.nbytes)
        (top, bottom), (left, right) = place.piece.rows, place.piece.cols
        part = invert(place.piece.transform, data).reshape(bottom - top, -1)
        target = whole[top:bottom, left * size : right * size]
        if filled[top:bottom, left:right].any() and not np.array_equal(target, part):
            raise CheckpointError(
                f"{place.stored.path}: '{place.stored.name}' disagrees with another rank about "
                f"'{tensor.name}'; the rank files are of different conversions, convert again"
            )
        target[:] = part
        filled[top:bottom, left:right] = True
    if not filled.all():
        raise CheckpointError(f"the rank files hold no full copy of '{tensor.name}'; convert again")
    return whole.reshape(-1)
