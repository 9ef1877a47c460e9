"""The units of work that threads do: convert one rank tensor, or compare one pair of copies."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from dsv4_trt.convert.job_pool import JobPool
from dsv4_trt.convert.plan import Plan
from dsv4_trt.convert.rank_file import RankFile
from dsv4_trt.convert.shard_reader import ShardReader
from dsv4_trt.convert.stream import CHUNK_BYTES, PieceStream
from dsv4_trt.errors import CheckpointError
from dsv4_trt.rank_tensors import TensorSpec
from dsv4_trt.safetensors_file import StoredTensor

Advance = Callable[[int], None]


class Worker:
    """Does jobs of one conversion; safe to share between threads."""

    def __init__(self, plan: Plan, stream: PieceStream, pool: JobPool, advance: Advance) -> None:
        self._plan = plan
        self._stream = stream
        self._pool = pool
        self._advance = advance

    def convert(self, file: RankFile, rank: int, tensor: TensorSpec) -> str:
        """Write all of a rank tensor; returns the sha256 of its bytes."""
        digest, start = hashlib.sha256(), file.layout.offsets[tensor.name]
        cursor = start
        literal = self._plan.literal(tensor.name, rank)
        if literal is not None:
            digest.update(literal)
            file.write(cursor, literal)
            cursor += len(literal)
        for piece in self._plan.pieces(tensor.name, rank):
            for chunk in self._stream.chunks(piece):
                self._pool.check()
                digest.update(chunk.data)
                file.write(cursor, chunk.data)
                cursor += chunk.nbytes
                self._advance(chunk.nbytes)
        if cursor - start != tensor.nbytes:
            raise AssertionError(
                f"plan of {tensor.name} gives {cursor - start} bytes, not {tensor.nbytes}"
            )
        return digest.hexdigest()

    def rehash(self, file: RankFile, tensor: TensorSpec) -> str:
        """The sha256 of a rank tensor as it lies in the file."""
        self._pool.check()
        digest = file.sha256(tensor, CHUNK_BYTES)
        self._advance(tensor.nbytes)
        return digest

    def compare(self, reader: ShardReader, copy: StoredTensor, shared: StoredTensor) -> None:
        """Raise `CheckpointError` unless two tensors hold the same bytes."""
        for start in range(0, copy.nbytes, CHUNK_BYTES):
            self._pool.check()
            count = min(CHUNK_BYTES, copy.nbytes - start)
            one, other = reader.read(copy, start, count), reader.read(shared, start, count)
            if not np.array_equal(one, other):
                at = start + int(np.argmax(one != other))
                raise CheckpointError(
                    f"'{copy.name}' of {copy.path} differs from the shared tensor '{shared.name}' at "
                    f"byte {at}; the MTP block must use the model's own, use --mtp skip to leave "
                    "it out"
                )
