"""What a build of TensorRT plans recorded, as JSON data: counts, profiles and cost, and every layer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from dsv4_trt.plan_record import BuildRecord, PlanRecord, Profile

Report = dict[str, Any]

# TensorRT's name of a layer in a plan: ours, the profile after the first, marks of fusing
_IN_PLAN = re.compile(r"(?P<layer>.+?)(?: \[profile (?P<profile>\d+)\])?(?:_U\d+)?(?:_myl\d+_\d+)?")


def engine_report(record: BuildRecord) -> Report:
    """Everything about the plans; layers are counted."""
    return {
        "engine": record.engine,
        "target": record.target,
        "tensorrt_version": record.tensorrt_version,
        "plugins": record.plugins,
        "is_runnable": record.is_runnable,
        "graphs": {name: _plan(plan) for name, plan in record.plans.items()},
    }


def layers_report(record: BuildRecord) -> Report:
    """By graph the inputs and outputs of its plan, and its layers with the streams that they run on."""
    return {
        name: {
            "inputs": [asdict(tensor) for tensor in plan.inputs],
            "outputs": [asdict(tensor) for tensor in plan.outputs],
            "layers": _layers(plan),
        }
        for name, plan in record.plans.items()
    }


def profiles_report(profiles: Iterable[Profile]) -> Report:
    """By profile the range of each run-time size."""
    return {p.name: {size: list(found) for size, found in p.sizes.items()} for p in profiles}


def _plan(plan: PlanRecord) -> Report:
    return {
        "num_bytes": plan.nbytes,
        "num_inputs": len(plan.inputs),
        "num_outputs": len(plan.outputs),
        "num_layers": len(plan.layers),
        "plugins": plan.num_plugins,
        "native_layers": dict(Counter(x.kind.lower() for x in plan.layers if x.op is None)),
        "num_aliases": sum(len(layer.aliases) for layer in plan.layers),
        "profiles": profiles_report(plan.profiles),
        "num_streams": plan.num_streams,
        "device_code": list(plan.device_code),
        "seconds": plan.seconds,
        "peak_bytes": plan.peak_bytes,
    }


def _layers(plan: PlanRecord) -> list[Report]:
    """Layers as recorded, with a stream for each profile; `None`: TensorRT made one of several layers."""
    streams: dict[tuple[str, int], int] = {}
    for name, stream in plan.stream_of.items():
        found = _IN_PLAN.fullmatch(name)
        assert found is not None, "any name matches"
        streams[found["layer"], int(found["profile"] or 0)] = stream
    profiles = [(index, profile.name) for index, profile in enumerate(plan.profiles)]
    return [
        {**asdict(layer), "streams": {p: streams.get((layer.name, i)) for i, p in profiles}}
        for layer in plan.layers
    ]
