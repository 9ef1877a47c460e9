"""Builds the plan of one network: configuration, the build itself, and what has to hold of the result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsv4_trt.builder.lowering.layers import Lowered
from dsv4_trt.builder.lowering.log import BuildLog
from dsv4_trt.builder.lowering.lower_rtx import lower_rtx
from dsv4_trt.builder.lowering.lower_tensorrt import lower_tensorrt
from dsv4_trt.builder.lowering.record import device_code, read_layers, streams_of
from dsv4_trt.builder.lowering.timing_cache import read_timings, write_timings
from dsv4_trt.errors import BuildError
from dsv4_trt.plan_record import PlanRecord, Profile

AUX_STREAMS = 2  # beside the main one: a layer's compressor, indexer and shared expert
_LOWERINGS = {"tensorrt": lower_tensorrt, "tensorrt-rtx": lower_rtx}


class PlanBuilder:
    """Builds a plan for one target, with the timings of earlier builds if they are read first."""

    def __init__(self, trt: Any, engine: str, target: str, log: BuildLog) -> None:
        self._trt, self._engine, self._target, self._log = trt, engine, target, log
        self._builder = trt.Builder(log.logger)
        self._builder.max_threads = 1  # several make a different plan every time
        self._cache: Any = None

    def build(self, lowered: Lowered, profiles: Sequence[Profile]) -> tuple[bytes, PlanRecord]:
        """A serialised plan and what it is.

        Raises `BuildError` with what TensorRT says.
        """
        start = time.monotonic()
        network = self._builder.create_network(0)
        _LOWERINGS[self._engine](self._trt, network, lowered, self._log)
        layers = read_layers(self._trt, network)
        config = self._config(lowered, profiles)
        plan = self._builder.build_serialized_network(network, config)
        if plan is None:
            raise BuildError(
                f"TensorRT could not build a plan of graph '{lowered.name}': {self._log.last_error()}"
            )
        if self._cache is not None:
            self._cache = config.get_timing_cache()
        data = bytes(plan)
        num_streams, stream_of = streams_of(self._log.layers, "\n".join(self._log.lines))
        return data, PlanRecord(
            graph=lowered.name,
            nbytes=len(data),
            inputs=lowered.inputs,
            outputs=lowered.outputs,
            layers=layers,
            profiles=tuple(profiles),
            num_streams=num_streams,
            stream_of=stream_of,
            device_code=device_code(data),
            seconds=round(time.monotonic() - start, 2),
            peak_bytes=_peak_bytes(),
        )

    def read_timing_cache(self, path: Path | None) -> None:
        """Begin with the timings of an earlier build, or with none."""
        config = self._builder.create_builder_config()
        data = read_timings(path) if path is not None else b""
        self._cache = config.create_timing_cache(data)
        if self._cache is None:
            raise BuildError(
                f"TensorRT can not read the timing cache {path}; it is from another version, or damaged"
            )

    def write_timing_cache(self, path: Path) -> None:
        """Keep the timings of this build."""
        write_timings(path, bytes(self._cache.serialize()))

    def _config(self, lowered: Lowered, profiles: Sequence[Profile]) -> Any:
        trt = self._trt
        config = self._builder.create_builder_config()
        config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
        config.max_aux_streams = AUX_STREAMS
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
        if self._engine == "tensorrt-rtx":
            config.num_compute_capabilities = 1
            capability = getattr(
                trt.ComputeCapability, self._target.upper().replace("_", "").rstrip("A")
            )
            config.set_compute_capability(capability, 0)
        if self._cache is not None and not config.set_timing_cache(self._cache, False):
            raise BuildError(
                "the timing cache is of another GPU; start without --input_timing_cache"
            )
        for profile in profiles:
            config.add_optimization_profile(self._profile(lowered, profile))
        return config

    def _profile(self, lowered: Lowered, profile: Profile) -> Any:
        made = self._builder.create_optimization_profile()
        for tensor in lowered.inputs:
            if tensor.is_sized:
                made.set_shape(tensor.name, *profile.shapes(tensor))
        return made


def _peak_bytes() -> int:
    """Most host memory of this process: `ru_maxrss` would count the one that it was forked from."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0  # kernels without this line
