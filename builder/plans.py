"""TensorRT plans of a bundle: what is asked of the process that builds them, and where its files go."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from dsv4_trt.builder.lowering.job import PlanJob
from dsv4_trt.builder.lowering.process import run_job
from dsv4_trt.builder.lowering.profiles import profiles
from dsv4_trt.builder.lowering.timing_cache import can_be_written
from dsv4_trt.contract import PLAN_FILE, BuildSpec, engine_file
from dsv4_trt.errors import ConfigError, MissingDependency
from dsv4_trt.graph import Graph
from dsv4_trt.kv_layout import KvLayout
from dsv4_trt.plan_record import BuildRecord
from dsv4_trt.targets import TENSORRT


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How plans are built, none of which the bundle remembers."""

    plugin_library: Path | None = None  # None: Python twins, whose plans can be looked at only
    input_timing_cache: Path | None = None
    output_timing_cache: Path | None = None
    progress: Callable[[str], None] = lambda what: None

    def check(self, engine: str) -> None:
        """Raise `ConfigError` for what an engine does not take, or for a path that is not there."""
        caches = (self.input_timing_cache, self.output_timing_cache)
        if engine != "tensorrt" and any(path is not None for path in caches):
            raise ConfigError(
                f"engine '{engine}' has no timing cache; --input_timing_cache and "
                "--output_timing_cache are for --engine tensorrt"
            )
        if engine not in TENSORRT and self.plugin_library is not None:
            raise ConfigError(
                f"engine '{engine}' has no plans; --plugin_library is for --engine "
                f"{' or '.join(TENSORRT)}"
            )
        for what, path in (
            ("plugin library", self.plugin_library),
            ("timing cache", self.input_timing_cache),
        ):
            if path is not None and not path.is_file():
                raise ConfigError(f"the {what} {path} is no file")
        target = self.output_timing_cache
        if target is not None and not can_be_written(target):
            raise ConfigError(f"{target} can not be written; name a file in a folder that is there")


def build_plans(
    graphs: list[Graph],
    build: BuildSpec,
    layout: KvLayout,
    folder: Path,
    world_size: int,
    options: PlanOptions,
) -> BuildRecord:
    """Build one plan for each graph into `folder`, a file for each rank, and record what came out.

    Graphs know no rank, so all ranks have the same plan: the files of the others are links.
    """
    job = PlanJob(
        engine=build.engine,
        target=build.target,
        graph=graphs[0],
        profiles=profiles(build, layout),
        plugin_library=_absolute(options.plugin_library),
        input_timing_cache=_absolute(options.input_timing_cache),
        output_timing_cache=_absolute(options.output_timing_cache),
    )
    record = run_job(job, folder, options.progress)
    timings = job.output_timing_cache or job.input_timing_cache
    for graph in graphs[1:]:
        further = run_job(
            replace(job, graph=graph, input_timing_cache=timings), folder, options.progress
        )
        record.plans.update(further.plans)
    for graph in graphs:
        for rank in range(1, world_size):
            _link(folder / engine_file(0, graph.name), folder / engine_file(rank, graph.name))
    text = json.dumps(record.to_json()) + "\n"
    (folder / PLAN_FILE).write_text(text, encoding="utf-8")
    return record


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, target)


def check_installed(engine: str) -> None:
    """Raise `MissingDependency` unless the packages that build an engine's plans are there."""
    if engine not in TENSORRT:
        return
    flavour = TENSORRT[engine]
    needed = (flavour.module, "onnx") if engine == "tensorrt-rtx" else (flavour.module,)
    for module in needed:
        if find_spec(module) is None:
            raise MissingDependency(module, engine, f"building for engine '{engine}'")
