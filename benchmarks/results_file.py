"""What every benchmark's result says about machine and day, and where it is written."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    parser.add_argument(
        "--name", default=platform.node(), help="ends the result's file name [default: this host's]"
    )
    parser.add_argument("--note", default="", help="what a reader of the result should know")
    return parser


def require_gpu() -> None:
    """End the program where torch sees no GPU, before it writes or compiles anything."""
    import torch  # here, as not every benchmark needs it

    if not torch.cuda.is_available():
        raise SystemExit("this is timed on a GPU, and torch sees none; see `dsv4-trt doctor`")


def circumstances(benchmark: str, note: str) -> dict[str, Any]:
    """Machine, date and commit; taken before the measurement, for the load average."""
    models = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        if line.startswith("model name")
    ]
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    return {
        "benchmark": benchmark,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit,
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "note": note,
    }


def write(name: str, result: dict[str, Any]) -> Path:
    """Write a result as JSON and print where."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{result['benchmark']}-{name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}")
    return path
