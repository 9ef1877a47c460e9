"""Rereads rank files and compares them with the source bit by bit: small tensors whole, others in samples.

Rank bytes are brought back by the inverse of their change of format, so that a mistake in the forward
direction shows. fp4 made fp8 has no unique inverse: there the values are compared, which is exact too.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dsv4_trt.contract import rank_file
from dsv4_trt.convert import codecs
from dsv4_trt.convert.codecs import Bytes
from dsv4_trt.convert.conversion import Conversion
from dsv4_trt.convert.inverse import invert
from dsv4_trt.convert.plan import Piece, Transform
from dsv4_trt.convert.shard_reader import ShardReader, open_shards
from dsv4_trt.errors import CheckpointError
from dsv4_trt.rank_tensors import TensorSpec
from dsv4_trt.safetensors_file import StoredTensor, read_header

WHOLE_BYTES = 64 << 10  # pieces up to this size are compared whole
SAMPLED_PIECES = 16  # of a tensor of many pieces (expert banks)
SAMPLED_ROWS = 8  # of a large piece


def verify(conversion: Conversion, folder: Path, seed: int = 0) -> int:
    """Compare the rank files in `folder` with the source; returns the compared rank bytes.

    Raises `CheckpointError` naming rank, tensor and place of the first difference.
    """
    compared = 0
    paths = [folder / rank_file(rank) for rank in range(len(conversion.layouts))]
    for path in paths:
        _drop_cache(path)
    with open_shards([*conversion.source.paths, *paths]) as reader:
        for rank, path in enumerate(paths):
            check = _RankCheck(conversion, reader, rank, path)
            for tensor in conversion.plan.tensors():
                compared += check.tensor(tensor, random.Random(f"{seed} {rank} {tensor.name}"))
    return compared


class _RankCheck:
    def __init__(self, conversion: Conversion, reader: ShardReader, rank: int, path: Path) -> None:
        self._plan = conversion.plan
        self._source = conversion.source.tensors
        self._reader = reader
        self._rank = rank
        self._stored = {tensor.name: tensor for tensor in read_header(path).tensors}

    def tensor(self, tensor: TensorSpec, draw: random.Random) -> int:
        stored = self._stored.get(tensor.name)
        if stored is None or (stored.dtype, stored.shape) != (tensor.dtype, tensor.shape):
            raise self._differs(tensor.name, "its header entry is not the planned one")
        literal = self._plan.literal(tensor.name, self._rank)
        if literal is not None:
            if self._reader.read(stored, 0, stored.nbytes).tobytes() != literal:
                raise self._differs(tensor.name, "it does not follow from the config")
            return len(literal)
        placed = list(self._placed(tensor.name))
        if len(placed) > SAMPLED_PIECES:
            placed = draw.sample(placed, SAMPLED_PIECES)
        return sum(self._piece(stored, offset, piece, draw) for offset, piece in placed)

    def _placed(self, name: str) -> Iterator[tuple[int, Piece]]:
        offset = 0
        for piece in self._plan.pieces(name, self._rank):
            yield offset, piece
            offset += piece.nbytes

    def _piece(self, stored: StoredTensor, offset: int, piece: Piece, draw: random.Random) -> int:
        compared = 0
        for rows in _sampled_rows(piece, draw):
            part = piece.part(rows)
            start = offset + piece.offset_of(rows[0])
            data = self._reader.read(stored, start, part.nbytes)
            if not self._equal(part, data):
                raise self._differs(
                    stored.name, f"rows {rows[0]}..{rows[1] - 1} of '{piece.source}' differ"
                )
            compared += part.nbytes
        return compared

    def _equal(self, part: Piece, data: Bytes) -> bool:
        source = self._rows(part)
        match part.transform:
            case Transform.FP4_SCALES:
                return np.array_equal(codecs.fp4_block_scales(source).reshape(-1), data)
            case Transform.FP4_TO_FP8:
                scales = self._rows(part.scales)
                stored = data.reshape(len(source), -1)
                found = codecs.dequantize_fp8(stored, codecs.fp4_block_scales(scales))
                expected = codecs.dequantize_fp4(source, scales)
                return np.array_equal(found.view(np.uint64), expected.view(np.uint64))
            case _:
                return np.array_equal(invert(part.transform, data), source.reshape(-1))

    def _rows(self, part: Piece) -> Bytes:
        tensor = self._source[part.source]
        size = tensor.dtype.itemsize
        return self._reader.read_rows(tensor, part.rows, (part.cols[0] * size, part.cols[1] * size))

    def _differs(self, name: str, what: str) -> CheckpointError:
        return CheckpointError(
            f"verification failed: tensor '{name}' of {rank_file(self._rank)} is wrong, {what}; "
            "the disk or the memory of this machine changes data, or this is a bug to report"
        )


def _sampled_rows(piece: Piece, draw: random.Random) -> Iterator[tuple[int, int]]:
    """Half-open row ranges: all rows of a small piece, else some steps and always the last one."""
    step, (first, last) = piece.row_step, piece.rows
    if piece.nbytes <= WHOLE_BYTES:
        yield piece.rows
        return
    starts = range(first, last, step)
    count = min(len(starts), max(SAMPLED_ROWS // step, 1))
    for start in sorted({*draw.sample(starts, count), starts[-1]}):
        yield start, start + step


def _drop_cache(path: Path) -> None:
    """Let go of the file's cached pages, so that it is the disk that is read."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
