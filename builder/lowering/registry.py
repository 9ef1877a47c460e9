"""Brings the plugins into TensorRT's registry: those of the library, or their twins in Python."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

from dsv4_trt.builder.lowering.job import PlanJob
from dsv4_trt.builder.lowering.log import BuildLog
from dsv4_trt.builder.lowering.twins import register_twins
from dsv4_trt.errors import BuildError, ConfigError
from dsv4_trt.plugins.library import Library, load_library
from dsv4_trt.plugins.planned_workspaces import planned_workspaces

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # of CUdevice_attribute


@dataclass(frozen=True, slots=True)
class Registered:
    """Where plugins come from: a library, or twins, which have to stay as long as they are used."""

    library: Library | None = None
    twins: list[Any] = field(default_factory=list)

    @property
    def version(self) -> str:
        """Of the headers that the library was compiled with; "" for twins."""
        return "" if self.library is None else self.library.tensorrt_version

    def workspaces(self, job: PlanJob) -> dict[str, dict[str, int]]:
        """Bytes that the library's plugins plan for, by profile and node; twins know none."""
        if self.library is None:
            return {}
        return {p.name: planned_workspaces(self.library, job.graph, p.most) for p in job.profiles}


def register_plugins(trt: Any, job: PlanJob, target: str, log: BuildLog) -> Registered:
    """Every op as a plugin of the registry."""
    if job.plugin_library is None:
        return Registered(twins=register_twins(trt, log.report))
    library = load_library(job.plugin_library)
    library.check_plugins()
    if job.engine == "tensorrt-rtx":  # which builds for other GPUs than are here
        library.plan_for(capability_of(target))
    if trt.get_plugin_registry().load_library(str(job.plugin_library)) is None:
        raise BuildError(f"TensorRT can not load {job.plugin_library}: {log.last_error()}")
    return Registered(library)


def target_of(job: PlanJob) -> str:
    """What the job's plans are for. TensorRT 11 times kernels on the GPU that it builds for."""
    if job.engine == "tensorrt-rtx":
        assert job.target is not None, "TensorRT-RTX has a default target"
        return job.target
    found = _this_gpu()
    if found is None:
        raise ConfigError(
            "engine 'tensorrt' is built on a machine with the GPU that it will run on, and this one "
            "shows none; use --engine native, or --engine tensorrt-rtx for GeForce and RTX PRO"
        )
    if job.target not in (None, found):
        raise ConfigError(
            f"target is {job.target} and this machine's GPU {found}; engine 'tensorrt' is built on a "
            "machine with the GPU that it will run on"
        )
    return found


def capability_of(target: str) -> int:
    """Compute capability of an architecture: 120 of sm_120a."""
    return int(target.removeprefix("sm_").removesuffix("a"))


def _this_gpu() -> str | None:
    """The first GPU's architecture, told by the driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, values = ctypes.c_int(), (ctypes.c_int(), ctypes.c_int())
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    for value, attribute in zip(values, (_CAPABILITY_MAJOR, _CAPABILITY_MINOR), strict=True):
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
            return None
    return f"sm_{values[0].value}{values[1].value}a"
