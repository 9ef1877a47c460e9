"""What `dsv4-trt inspect` finds out about the TensorRT plans of a bundle; TensorRT need not be here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsv4_trt.cli.engine_report import Report, engine_report, layers_report
from dsv4_trt.contract import BUILD_LOG_FILE, PLAN_FILE, check_format, engine_file
from dsv4_trt.errors import BundleMismatch
from dsv4_trt.plan_record import PLAN_FORMAT, BuildRecord

Digests = Mapping[str, str]


def plans_report(path: Path, digests: Digests, world_size: int) -> Report:
    """`plans`, what the bundle `path` records of its build and of its files, and `plan_layers`.

    Raises `BundleMismatch` if the record is missing, changed or of another version.
    """
    record = _read_record(path, digests)
    plans = [engine_file(rank, graph) for rank in range(world_size) for graph in record.plans]
    found = {
        **engine_report(record),
        "plan_files": [_file(path, name, digests) for name in plans],
        "log_file": str(path / BUILD_LOG_FILE),
    }
    return {"plans": found, "plan_layers": layers_report(record)}


def read_log(path: Path) -> str:
    """What TensorRT said while the plans of the bundle `path` were built."""
    log = path / BUILD_LOG_FILE
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise BundleMismatch(f"{log} is missing; build the bundle again") from None


def _read_record(path: Path, digests: Digests) -> BuildRecord:
    from dsv4_trt.json_fields import read_object

    file = path / PLAN_FILE
    if not file.is_file():
        raise BundleMismatch(f"{file} is missing; build the bundle again")
    if _sha256(file) != digests.get(PLAN_FILE):
        raise BundleMismatch(
            f"{file} was changed after the bundle was built; build the bundle again"
        )
    data: dict[str, Any] = read_object(file, "what a build of plans recorded").data
    check_format(f"{PLAN_FILE} of {path}", data.get("format_version"), PLAN_FORMAT)
    return BuildRecord.from_json(data)


def _file(path: Path, name: str, digests: Digests) -> Report:
    """A plan on the disk: its bytes, `None` if it is missing, and whether they are the ones built."""
    file = path / name
    if not file.is_file():
        return {"file": name, "num_bytes": None, "state": "is missing"}
    same = _sha256(file) == digests.get(name)
    state = "as built" if same else "was changed after it was built"
    return {"file": name, "num_bytes": file.stat().st_size, "state": state}


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
