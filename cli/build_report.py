"""What `dsv4-trt build` did, or would do, as plain JSON data."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4_trt.cli.engine_report import Report, engine_report, profiles_report
from dsv4_trt.targets import TENSORRT

if TYPE_CHECKING:
    from dsv4_trt.builder.dry_run import DryRun
    from dsv4_trt.plan_record import BuildRecord


def build_report(output_dir: Path, world_size: int, record: BuildRecord | None) -> Report:
    """Files of a bundle that was built, and its plans if it has some."""
    files = {f.name: f.stat().st_size for f in sorted(output_dir.iterdir()) if f.is_file()}
    report = {"output_dir": str(output_dir), "world_size": world_size, "files": files}
    return report if record is None else {**report, "plans": engine_report(record)}


def dry_run_report(output_dir: Path, found: DryRun) -> Report:
    """The same of a bundle that was not built."""
    has_plans = found.engine in TENSORRT
    return {
        "output_dir": str(output_dir),
        "dry_run": True,
        **asdict(found),
        "is_runnable": not has_plans or found.plugin_library is not None,
        "profiles": profiles_report(found.profiles),
        "files": list(found.files),
    }
