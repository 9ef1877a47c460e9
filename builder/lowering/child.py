"""The process that builds a plan: a job from stdin, messages as JSON lines to a pipe.

python -m dsv4_trt.builder.lowering.child PIPE

TensorRT puts bytes of memory that it never wrote into plans. So that the same job gives the same plan, the
process runs at the same addresses every time, where the system lets it choose.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from dsv4_trt.builder.lowering.job import PlanJob
from dsv4_trt.contract import BUILD_LOG_FILE, engine_file
from dsv4_trt.errors import ConfigError, Dsv4Error
from dsv4_trt.plan_record import BuildRecord
from dsv4_trt.targets import TENSORRT, check_version

_NO_RANDOM_ADDRESSES = 0x0040000
_ASK = 0xFFFFFFFF
Tell = Callable[..., None]


def main(pipe: int) -> None:
    """Do the job; whatever is raised goes to the pipe as a message."""
    settle()
    with os.fdopen(pipe, "w", encoding="utf-8", buffering=1) as out:

        def tell(**message: Any) -> None:
            out.write(json.dumps(message) + "\n")

        try:
            record = build(PlanJob.from_json(json.load(sys.stdin)), tell)
            tell(record=record.to_json())
        except Dsv4Error as error:
            tell(error=type(error).__name__, message=str(error))


def settle() -> None:
    """Start again at fixed addresses and with a fixed order of hashes, unless this process has them."""
    libc = ctypes.CDLL(None)
    now = libc.personality(ctypes.c_ulong(_ASK))
    if now & _NO_RANDOM_ADDRESSES or "DSV4_TRT_SETTLED" in os.environ:
        return
    os.environ["DSV4_TRT_SETTLED"] = "1"  # also where the system refuses
    os.environ["PYTHONHASHSEED"] = "0"
    libc.personality(ctypes.c_ulong(now | _NO_RANDOM_ADDRESSES))
    os.execv(sys.executable, [sys.executable, "-m", __spec__.name, *sys.argv[1:]])


def build(job: PlanJob, tell: Tell) -> BuildRecord:
    """Build the plan of a job and write it into this folder, and TensorRT's log behind what is there."""
    from dsv4_trt.builder.lowering.layers import lower
    from dsv4_trt.builder.lowering.log import BuildLog
    from dsv4_trt.builder.lowering.plan import PlanBuilder
    from dsv4_trt.builder.lowering.registry import register_plugins, target_of

    trt = import_tensorrt(job.engine)
    target = target_of(job)
    tell(progress=f"{job.graph.name}: {len(job.graph.nodes)} nodes for {target}")
    log = BuildLog(trt)
    try:
        plugins = register_plugins(trt, job, target, log)
        builder = PlanBuilder(trt, job.engine, target, log)
        if job.engine == "tensorrt":
            builder.read_timing_cache(job.input_timing_cache)
        data, plan = builder.build(lower(job.graph), job.profiles)
        if job.output_timing_cache is not None:
            builder.write_timing_cache(job.output_timing_cache)
    finally:
        with open(BUILD_LOG_FILE, "a", encoding="utf-8") as out:
            out.write(f"=== {job.graph.name}\n{log.text()}\n")
    Path(engine_file(0, job.graph.name)).write_bytes(data)
    return BuildRecord(
        engine=job.engine,
        target=target,
        tensorrt_version=trt.__version__,
        plugins=plugins.version,
        plans={job.graph.name: plan},
    )


def import_tensorrt(engine: str) -> Any:
    """The bindings of an engine's TensorRT, of a version that it was written for."""
    flavour = TENSORRT[engine]
    trt = import_module(flavour.module)
    if not hasattr(trt, "Builder"):
        raise ConfigError(
            f"{flavour.module} {trt.__version__} has no builder; install {flavour.package}"
        )
    check_version(engine, trt.__version__)
    return trt


if __name__ == "__main__":
    main(int(sys.argv[1]))
