"""Runs a conversion: jobs on threads, digests, and a checkpoint that appears whole or not at all.

Memory stays bounded because a job holds one chunk; the size of the checkpoint does not matter.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dsv4_trt.contract import CONFIG_FILE, MANIFEST_FILE, rank_file
from dsv4_trt.convert.conversion import Conversion
from dsv4_trt.convert.disk_space import check_space
from dsv4_trt.convert.job_pool import JobPool
from dsv4_trt.convert.rank_config import rank_config, rank_manifest
from dsv4_trt.convert.rank_file import NO_SPACE, RankFile
from dsv4_trt.convert.shard_reader import open_shards
from dsv4_trt.convert.source import check_unchanged
from dsv4_trt.convert.staging import Staging, check_output, open_staging
from dsv4_trt.convert.stream import PieceStream
from dsv4_trt.convert.tensor_jobs import Advance, Worker
from dsv4_trt.convert.verify import verify
from dsv4_trt.errors import CapacityError, CheckpointError, Dsv4Error
from dsv4_trt.rank_tensors import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport:
    """What a finished conversion did."""

    output_dir: Path
    rank_bytes: tuple[int, ...]
    seconds: float
    resumed_tensors: int  # found finished and intact
    verified_bytes: int  # compared with the source; 0 without `verify`


def convert(conversion: Conversion, advance: Advance = lambda nbytes: None) -> ConvertReport:
    """Write the rank checkpoint; `advance` is told written bytes, by any thread.

    Raises `ConfigError` for an output that exists, `CheckpointError` for values that have no exact form,
    `CapacityError` for a full disk. `staging` says what stays behind.
    """
    began = time.monotonic()
    options = conversion.options
    check_output(options.output_dir)
    staging = open_staging(options.output_dir, conversion.digest(), resume=options.resume)
    with _cleaned_up(staging):
        resumed = _write_ranks(conversion, staging, advance)
        _write_rest(conversion, staging)
        checked = verify(conversion, staging.checkpoint) if options.verify else 0
        check_unchanged(conversion.source)
        check_output(options.output_dir)
        staging.publish()
    return ConvertReport(
        output_dir=options.output_dir,
        rank_bytes=tuple(layout.nbytes for layout in conversion.layouts),
        seconds=time.monotonic() - began,
        resumed_tensors=resumed,
        verified_bytes=checked,
    )


@contextmanager
def _cleaned_up(staging: Staging) -> Iterator[None]:
    """Decide what stays when the run fails: finished tensors, unless the input itself is bad."""
    try:
        yield
    except (CapacityError, OSError) as error:
        kept = _keep_finished(staging)
        hint = f"; {len(staging.finished)} finished tensors are kept, go on with --resume"
        if isinstance(error, CapacityError):
            raise CapacityError(f"{error}{hint if kept else ''}") from error
        if error.errno in NO_SPACE:
            disk = f"the disk of {staging.partial} is full ({error})"
            advice = "free some space or choose another output_dir"
            raise CapacityError(f"{disk}; {advice}{hint if kept else ''}") from error
        raise CheckpointError(f"conversion failed: {error}{hint if kept else ''}") from error
    except Dsv4Error:
        staging.discard()
        raise
    except BaseException:
        _keep_finished(staging)
        raise


def _keep_finished(staging: Staging) -> bool:
    if staging.finished:
        staging.close()
        return True
    staging.discard()
    return False


def _write_ranks(conversion: Conversion, staging: Staging, advance: Advance) -> int:
    """Write all rank files; returns how many tensors a former run had finished."""
    check_space(conversion, staging.checkpoint)
    with ExitStack() as stack:
        reader = stack.enter_context(open_shards(conversion.source.paths))
        files = []
        for rank, layout in enumerate(conversion.layouts):
            files.append(RankFile(staging.checkpoint / rank_file(rank), layout))
            stack.callback(files[-1].close)
        stream = PieceStream(reader, conversion.source.tensors, conversion.plan.spec)
        pool = stack.enter_context(JobPool(conversion.options.workers))
        worker = Worker(conversion.plan, stream, pool, advance)
        pool.run([partial(worker.compare, reader, *pair) for pair in conversion.mtp_copies])
        resumed = pool.run(_tensor_jobs(conversion, staging, worker, files))
        pool.run([file.sync for file in files])
    return sum(resumed)


def _tensor_jobs(
    conversion: Conversion, staging: Staging, worker: Worker, files: list[RankFile]
) -> list[Callable[[], bool]]:
    """A job per tensor and rank, which tells whether a former run had done it.

    Largest first keeps all threads busy to the end; the ranks of a tensor come in a row because they read
    the same source rows, which the page cache then serves.
    """

    def job(rank: int, tensor: TensorSpec) -> bool:
        former = staging.finished.get((rank, tensor.name))
        if former is not None and worker.rehash(files[rank], tensor) == former:
            return True
        staging.record(rank, tensor.name, worker.convert(files[rank], rank, tensor))
        return False

    tensors = sorted(conversion.plan.tensors(), key=lambda tensor: -tensor.nbytes)
    return [partial(job, rank, tensor) for tensor in tensors for rank in range(len(files))]


def _write_rest(conversion: Conversion, staging: Staging) -> None:
    digests = [
        {tensor.name: staging.finished[rank, tensor.name] for tensor in layout.tensors}
        for rank, layout in enumerate(conversion.layouts)
    ]
    ranks = {staging.checkpoint / rank_file(rank) for rank in range(len(digests))}
    for left in set(staging.checkpoint.iterdir()) - ranks:
        left.unlink()  # by a run that was stopped here and may have copied other files
    _write_json(staging.checkpoint / CONFIG_FILE, rank_config(conversion))
    _write_json(staging.checkpoint / MANIFEST_FILE, rank_manifest(conversion, digests))
    for path in conversion.copied:
        shutil.copyfile(path, staging.checkpoint / path.name)


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
