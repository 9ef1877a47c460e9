"""What a step costs the host besides the engine: scheduling, pages, tables, step metadata.

256 sequences decode at a given length (1M tokens and, for comparison, 8K), on Flash's layout with fp8
caches. Timed is everything from `schedule` to `settle`, with an engine that does nothing. The sequences
stand at different places of their windows, as they do in service; the worst case, all at the same place,
is timed as well.

    python benchmarks/step_overhead.py
"""

from __future__ import annotations

import statistics
import time
from array import array

import numpy as np
from no_engine import no_engine
from results_file import circumstances, parser_of, write

from dsv4_trt.contract import BuildSpec
from dsv4_trt.kv_layout import solve
from dsv4_trt.kv_plan import KvPlan
from dsv4_trt.presets import FLASH
from dsv4_trt.runtime.kv.retention import Retention
from dsv4_trt.runtime.request import Request
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.schedule.scheduler import ScheduleLimits, Scheduler
from dsv4_trt.runtime.schedule.sequence import Sequence, Status
from dsv4_trt.runtime.stepper import Stepper

TARGET_MS = 1.0
NUM_SEQS = 256
LONG, SHORT = 1 << 20, 8192
WARM_UP, STEPS = 64, 512  # two logical blocks
ROOM = WARM_UP + STEPS  # tokens that each sequence decodes


def main() -> int:
    args = parser_of(__doc__).parse_args()
    about = circumstances("step_overhead", args.note)
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
        **about,
        "numpy": np.__version__,
        "num_seqs": NUM_SEQS,
        "steps": STEPS,
        "cases": cases,
        "mean_1m_over_8k": round(growth, 3),
        "target_ms": TARGET_MS,
        "target_met": cases["1M-spread"]["mean_ms"] < TARGET_MS,
    }
    print(f"1M over 8K: {growth:.2f}")
    write(args.name, result)
    return 0 if result["target_met"] else 1


def _measure(length: int, aligned: bool) -> dict[str, float]:
    """Milliseconds of a step while `NUM_SEQS` sequences of `length` tokens decode."""
    layout, longest = solve(FLASH, "fp8", "fp8"), length + 2 * ROOM
    need = layout.peak_pages_per_sequence(longest)
    plan = KvPlan(layout=layout, num_pages={b: NUM_SEQS * pages for b, pages in need.items()})
    build = BuildSpec(max_batch_size=NUM_SEQS, max_num_tokens=8192, max_seq_len=longest)
    stepper = Stepper(no_engine(plan, build))
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


if __name__ == "__main__":
    raise SystemExit(main())
