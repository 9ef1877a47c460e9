"""The process that builds a plan: a job from stdin, messages as JSON lines to a pipe.

python -m dsv4_trt.builder.lowering.child PIPE
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from dsv4_trt.builder.lowering.job import PlanJob
from dsv4_trt.builder.lowering.layers import lower
from dsv4_trt.builder.lowering.log import BuildLog
from dsv4_trt.builder.lowering.lower_rtx import import_onnx
from dsv4_trt.builder.lowering.plan import PlanBuilder
from dsv4_trt.builder.lowering.process_state import end_with_parent, settle
from dsv4_trt.builder.lowering.registry import register_plugins, target_of
from dsv4_trt.contract import BUILD_LOG_FILE, engine_file
from dsv4_trt.errors import BuildError, ConfigError, Dsv4Error
from dsv4_trt.plan_record import BuildRecord
from dsv4_trt.targets import TENSORRT, check_version

Tell = Callable[..., None]


def main() -> None:
    """Do the job; whatever is raised goes to the pipe as a message."""
    end_with_parent()
    settle(__spec__.name)
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8", buffering=1) as out:

        def tell(**message: Any) -> None:
            out.write(json.dumps(message) + "\n")

        try:
            record = build(PlanJob.from_json(json.load(sys.stdin)), tell)
            tell(record=record.to_json())
        except Dsv4Error as error:
            tell(error=type(error).__name__, message=str(error))
        except OSError as error:  # the disk of this folder
            message = f"{os.getcwd()}: {error.strerror}; TMPDIR names another place for it"
            tell(error=BuildError.__name__, message=message)


def build(job: PlanJob, tell: Tell) -> BuildRecord:
    """Build the plan of a job and write it and TensorRT's log into this folder."""
    if job.engine == "tensorrt-rtx":
        import_onnx()  # before TensorRT has threads: of two that allocate, either may be first
    trt = import_tensorrt(job.engine)
    target = target_of(job)
    tell(progress=f"{job.graph.name}: {len(job.graph.nodes)} nodes for {target}")
    log = BuildLog(trt, lambda message: tell(error=BuildError.__name__, message=message))
    try:
        plugins = register_plugins(trt, job, target, log)
        builder = PlanBuilder(trt, job.engine, target, log)
        if job.engine == "tensorrt":
            builder.read_timing_cache(job.input_timing_cache)
        data, plan = builder.build(lower(job.graph), job.profiles)
        plan = replace(plan, workspaces=plugins.workspaces(job))
        if job.output_timing_cache is not None:
            builder.write_timing_cache(job.output_timing_cache)
    finally:
        text = f"=== {job.graph.name}\n{log.text()}\n"
        Path(BUILD_LOG_FILE).write_text(text, encoding="utf-8")
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
    try:
        trt = import_module(flavour.module)
    except (ImportError, OSError) as error:  # bindings without their library among them
        raise ConfigError(
            f"{flavour.module} can not be loaded: {error}; install {flavour.package}"
        ) from error
    if not hasattr(trt, "Builder"):
        raise ConfigError(
            f"{flavour.module} {trt.__version__} has no builder; install {flavour.package}"
        )
    check_version(engine, trt.__version__)
    return trt


if __name__ == "__main__":
    main()
