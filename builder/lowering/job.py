"""The build of one plan as plain data: it goes to the process that does it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dsv4_trt.graph import Graph
from dsv4_trt.plan_record import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanJob:
    """The plan of a graph; it is written as `engine_file(0, graph)` into the process's folder."""

    engine: str
    target: str | None  # None: of the GPU that is there
    graph: Graph
    profiles: tuple[Profile, ...]
    plugin_library: Path | None  # None: Python twins
    input_timing_cache: Path | None = None
    output_timing_cache: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        paths = {name: getattr(self, name) for name in _PATHS}
        return {
            "engine": self.engine,
            "target": self.target,
            "graph": self.graph.to_json(),
            "profiles": [asdict(profile) for profile in self.profiles],
            **{name: None if path is None else str(path) for name, path in paths.items()},
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> PlanJob:
        """Read what `to_json` wrote."""
        paths: dict[str, Any] = {
            name: None if data[name] is None else Path(data[name]) for name in _PATHS
        }
        return PlanJob(
            engine=data["engine"],
            target=data["target"],
            graph=Graph.from_json(data["graph"]),
            profiles=tuple(map(Profile.from_json, data["profiles"])),
            **paths,
        )


_PATHS = ("plugin_library", "input_timing_cache", "output_timing_cache")
