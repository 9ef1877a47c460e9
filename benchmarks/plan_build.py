"""What it takes to build TensorRT-RTX plans of whole models, on a machine without a GPU.

Runs `dsv4-trt build --engine tensorrt-rtx` for the tiny model, all layers of Flash and all layers of Pro,
each with its MTP block and without weights, which plans do not hold. Takes time from start to end, bytes of
each plan, and the greatest resident memory of all processes together. Fails if a target is missed.

    python benchmarks/plan_build.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results_file import ROOT, circumstances, parser_of, write

PRESETS = ("tiny", "flash", "pro")
MOST_SECONDS = 60
MOST_PLAN_BYTES = 20_000_000
MOST_RESIDENT_BYTES = 4 << 30
POLL_S = 0.02


def main() -> int:
    args = _arguments()
    result = circumstances("plan_build", args.note) | {
        "target": args.target,
        "targets": {
            "seconds": MOST_SECONDS,
            "plan_bytes": MOST_PLAN_BYTES,
            "resident_bytes": MOST_RESIDENT_BYTES,
        },
    }
    models = {preset: _measure(preset, args) for preset in PRESETS}
    result |= {"models": models, "targets_met": all(m["targets_met"] for m in models.values())}
    write(args.name, result)
    return 0 if result["targets_met"] else 1


def _arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--target", default="sm_120a", help="GPU that plans are for")
    parser.add_argument("--rounds", type=int, default=3, help="times each model is built")
    return parser.parse_args()


def _measure(preset: str, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of every round, the most memory of all, and what the last one built."""
    seconds, resident, report = [], 0, {}
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory(prefix="plan-build-") as folder:
            taken, most, report = _build(preset, args.target, Path(folder, "engine"))
        seconds.append(round(taken, 2))
        resident = max(resident, most)
        print(f"{preset}: {taken:.1f} s, {most >> 20} MiB", file=sys.stderr)
    graphs = report["plans"]["graphs"]
    plans = {
        name: {
            **{key: graph[key] for key in ("num_bytes", "num_inputs", "num_layers", "num_aliases")},
            "num_plugins": sum(graph["plugins"].values()),
            "num_streams": graph["num_streams"],
            "builder_seconds": graph["seconds"],
            "builder_peak_bytes": graph["peak_bytes"],
        }
        for name, graph in graphs.items()
    }
    met = (
        max(seconds) < MOST_SECONDS
        and resident < MOST_RESIDENT_BYTES
        and all(plan["num_bytes"] < MOST_PLAN_BYTES for plan in plans.values())
    )
    return {
        "tensorrt_version": report["plans"]["tensorrt_version"],
        "plugins": report["plans"]["plugins"] or "Python twins",
        "seconds": seconds,
        "resident_bytes": resident,
        "plans": plans,
        "targets_met": met,
    }


def _build(preset: str, target: str, output: Path) -> tuple[float, int, dict[str, Any]]:
    """Build once; returns seconds, most resident bytes of all processes, and the command's report."""
    command = [
        *(sys.executable, "-m", "dsv4_trt.cli", "build", "--preset", preset, "--dummy-weights"),
        *("--engine", "tensorrt-rtx", "--target", target, "--output_dir", str(output), "--json"),
    ]
    most, began = 0, time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out)
        while process.poll() is None:
            most = max(most, _resident(process.pid))
            time.sleep(POLL_S)
        seconds = time.monotonic() - began
        if process.returncode:
            raise SystemExit(f"failed: {' '.join(command)}")
        out.seek(0)
        return seconds, most, json.load(out)


def _resident(pid: int) -> int:
    """Resident bytes of a process and its descendants; pages that they share count for each."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return 0
    lines = dict(line.split(":", 1) for line in status.splitlines())
    own = int(lines["VmRSS"].split()[0]) << 10 if "VmRSS" in lines else 0
    return own + sum(_resident(int(child)) for child in children)


if __name__ == "__main__":
    raise SystemExit(main())
