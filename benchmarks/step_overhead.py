"""What a step costs the host besides the engine: scheduling, pages, tables, step metadata.

256 sequences decode at a given length (1M tokens and, for comparison, 8K), on Flash's layout with fp8
caches. Timed is everything from `schedule` to `settle`, with an engine that does nothing. The sequences
stand at different places of their windows, as they do in service; the worst case, all at the same place,
is timed as well.

    python benchmarks/step_overhead.py
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from array import array
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from dsv4_trt.contract import BuildSpec
from dsv4_trt.kv_layout import solve
from dsv4_trt.kv_plan import KvPlan
from dsv4_trt.presets import FLASH
from dsv4_trt.runtime.batch import StepBatch, StepOutput
from dsv4_trt.runtime.kv.retention import Retention
from dsv4_trt.runtime.request import Request
from dsv4_trt.runtime.sampling_params import SamplingParams
from dsv4_trt.runtime.schedule.scheduler import ScheduleLimits, Scheduler
from dsv4_trt.runtime.schedule.sequence import Sequence, Status
from dsv4_trt.runtime.stepper import Stepper

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
TARGET_MS = 1.0
NUM_SEQS = 256
LONG, SHORT = 1 << 20, 8192
WARM_UP, STEPS = 64, 512  # two logical blocks
ROOM = WARM_UP + STEPS  # tokens that each sequence decodes


class NoEngine:
    """Everything a stepper asks of an engine, and no work."""

    spec = FLASH
    ladders = None
    owner: object = None

    def __init__(self, length: int) -> None:
        self.layout = solve(FLASH, "fp8", "fp8")
        self.build = BuildSpec(
            max_batch_size=NUM_SEQS, max_num_tokens=8192, max_seq_len=length + 2 * ROOM
        )
        need = self.layout.peak_pages_per_sequence(length + 2 * ROOM)
        self.plan = KvPlan(layout=self.layout, num_pages={b: NUM_SEQS * n for b, n in need.items()})

    def step(self, batch: StepBatch, *, want_streams: bool = False) -> StepOutput:
        return StepOutput(logits=np.empty((len(batch.logits_rows), 0)), streams=None)  # type: ignore[arg-type]


def main() -> int:
    args = _arguments()
    cases = {
        f"{name}-{'aligned' if aligned else 'spread'}": _measure(length, aligned)
        for name, length in (("8K", SHORT), ("1M", LONG))
        for aligned in (False, True)
    }
    for name, case in cases.items():
        print(
            f"{name:12} mean {case['mean_ms']:.3f} ms  p50 {case['p50_ms']:.3f}  p99 {case['p99_ms']:.3f}"
        )
    growth = cases["1M-spread"]["mean_ms"] / cases["8K-spread"]["mean_ms"]
    result = {
        **_circumstances(args),
        "num_seqs": NUM_SEQS,
        "steps": STEPS,
        "cases": cases,
        "mean_1m_over_8k": round(growth, 3),
        "target_ms": TARGET_MS,
        "target_met": cases["1M-spread"]["mean_ms"] < TARGET_MS,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"step_overhead-{args.name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"1M over 8K: {growth:.2f}; wrote {path.relative_to(ROOT)}")
    return 0 if result["target_met"] else 1


def _measure(length: int, aligned: bool) -> dict[str, float]:
    """Milliseconds of a step while `NUM_SEQS` sequences of `length` tokens decode."""
    stepper = Stepper(NoEngine(length))  # type: ignore[arg-type]
    limits = ScheduleLimits(max_num_seqs=NUM_SEQS, max_num_tokens=8192)
    scheduler = Scheduler(stepper.kv, limits, Retention())
    places = (
        np.zeros(NUM_SEQS, int) if aligned else np.random.default_rng(0).integers(0, 256, NUM_SEQS)
    )
    for place in places.tolist():
        _start(scheduler, stepper, length + place)
    times = []
    for _ in range(WARM_UP + STEPS):
        began = time.perf_counter()
        plan = scheduler.schedule()
        assert plan is not None
        stepper.run(plan.record())
        scheduler.settle(plan)
        times.append(1e3 * (time.perf_counter() - began))
        for sequence in plan.decoding:
            sequence.append(7)
    assert scheduler.num_preempted == 0
    times = sorted(times[WARM_UP:])
    return {
        "mean_ms": round(statistics.fmean(times), 4),
        "p50_ms": round(times[len(times) // 2], 4),
        "p99_ms": round(times[len(times) * 99 // 100], 4),
    }


def _start(scheduler: Scheduler, stepper: Stepper, length: int) -> None:
    """A sequence that has computed `length` tokens and knows the next one."""
    params = SamplingParams(max_tokens=ROOM + 1)
    request = Request(request_id=str(length), prompt_ids=(), params=params)
    buffer = array("i", bytes(4 * (length + ROOM + 2)))
    sequence = Sequence(request, 0, buffer, length + 1, length)
    sequence.block_hashes()
    sequence.row = stepper.kv.open()
    rows = np.array([sequence.row], np.int32)
    stepper.kv.commit(stepper.kv.prepare(rows, np.array([length], np.int32)))
    sequence.num_computed, sequence.status = length, Status.DECODING
    scheduler.decoding.append(sequence)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--name", default=platform.node(), help="goes into the result's file name")
    parser.add_argument("--note", default="", help="what a reader of the result should know")
    return parser.parse_args()


def _circumstances(args: argparse.Namespace) -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    models = Path("/proc/cpuinfo").read_text("utf-8").split("model name\t: ")
    return {
        "benchmark": "step_overhead",
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit,
        "cpu": models[1].split("\n")[0] if len(models) > 1 else platform.machine(),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "note": args.note,
    }


if __name__ == "__main__":
    raise SystemExit(main())
