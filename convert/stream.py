"""One piece of a plan from its shard to result bytes, a bounded chunk of whole rows at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsv4_trt.convert import codecs
from dsv4_trt.convert.codecs import Bytes, InexactValue
from dsv4_trt.convert.plan import Piece, Transform
from dsv4_trt.convert.shard_reader import ShardReader, row_bytes
from dsv4_trt.errors import CheckpointError
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.safetensors_file import StoredTensor

CHUNK_BYTES = 4 << 20  # read at once; large enough for full disk speed, small enough for the caches
FP4_CHUNK_BYTES = 256 << 10  # unpacking needs about 20 times this for its indices and results


class PieceStream:
    """Reads pieces of one source; safe to share between threads."""

    def __init__(
        self, reader: ShardReader, tensors: dict[str, StoredTensor], spec: ModelSpec
    ) -> None:
        self._reader = reader
        self._tensors = tensors
        self._num_experts = spec.n_routed_experts

    def chunks(self, piece: Piece) -> Iterator[Bytes]:
        """Result bytes of the piece, in order.

        Raises `CheckpointError` naming tensor, index and value where a value has no exact result.
        """
        for rows in _row_ranges(piece, self._tensors[piece.source]):
            yield self._result(piece.part(rows))

    def _result(self, part: Piece) -> Bytes:
        tensor = self._tensors[part.source]
        try:
            return self._transformed(part, tensor)
        except InexactValue as error:
            raise _inexact(part, tensor, error) from error

    def _transformed(self, piece: Piece, tensor: StoredTensor) -> Bytes:
        data = self._read(tensor, piece.rows, piece.cols)
        match piece.transform:
            case Transform.COPY:
                return data.reshape(-1)
            case Transform.E8M0:
                return codecs.check_e8m0(data).reshape(-1)
            case Transform.F32_TO_E8M0:
                return codecs.f32_to_e8m0(data.view(np.float32)).reshape(-1)
            case Transform.EXPERT_IDS:
                ids = codecs.i64_to_i32(data.view(np.int64), self._num_experts)
                return ids.view(np.uint8).reshape(-1)
            case Transform.FP4_SCALES:
                return codecs.fp4_block_scales(data).reshape(-1)
            case Transform.FP4_TO_FP8:
                scales = self._result(piece.scales).reshape(len(data), -1)
                return codecs.fp4_to_fp8(data, scales).reshape(-1)

    def _read(self, tensor: StoredTensor, rows: tuple[int, int], cols: tuple[int, int]) -> Bytes:
        size = tensor.dtype.itemsize
        return self._reader.read_rows(tensor, rows, (cols[0] * size, cols[1] * size))


def _row_ranges(piece: Piece, tensor: StoredTensor) -> Iterator[tuple[int, int]]:
    """The piece's rows in ranges of about one chunk."""
    target = FP4_CHUNK_BYTES if piece.transform is Transform.FP4_TO_FP8 else CHUNK_BYTES
    steps = target // max(row_bytes(tensor) * piece.row_step, 1)
    size = max(steps, 1) * piece.row_step
    for first in range(*piece.rows, size):
        yield first, min(first + size, piece.rows[1])


def _inexact(piece: Piece, tensor: StoredTensor, error: InexactValue) -> CheckpointError:
    cols = piece.cols[1] - piece.cols[0]
    if piece.transform is Transform.FP4_TO_FP8:
        cols *= 2
    row, col = divmod(error.at, cols)
    start = piece.cols[0] * (2 if piece.transform is Transform.FP4_TO_FP8 else 1)
    index = [piece.rows[0] + row, start + col][: max(len(tensor.shape), 1)]
    advice = {
        Transform.F32_TO_E8M0: "scales must be powers of two to be kept exactly in e8m0",
        Transform.FP4_TO_FP8: "use --experts keep, which stores fp4 as it is",
    }.get(piece.transform, "the checkpoint is damaged or not an official one")
    return CheckpointError(
        f"{tensor.path}: tensor '{piece.source}' holds {error.value} at {index}, {error.reason}; {advice}"
    )
