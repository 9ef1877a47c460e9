"""How long a step of a reduced-depth, full-width model takes on one GPU, and where the time goes.

Decode steps at several batch sizes and contexts, and one prefill chunk of 8,192 tokens, with weights made
up on the device. Contexts are pages of small random values that nobody computed. A step is timed whole
(captured graph, between two events, in a row of steps), then launch by launch for the shares of ops and
layers; the time of the full depth follows from the whole step by the shares of the layer kinds.

    python benchmarks/model_step.py --preset flash --layers 8
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results_file import circumstances, parser_of, require_gpu, write

from dsv4_trt.builder.bundle import build_bundle
from dsv4_trt.builder.dummy_checkpoint import dummy_checkpoint
from dsv4_trt.contract import BuildSpec
from dsv4_trt.kv_plan import plan_for_sequences
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.presets import FLASH, PRO, cut_layers
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.cuda.engine import CudaEngine
from dsv4_trt.runtime.cuda.open import open_cuda_engine
from dsv4_trt.runtime.cuda.profile import Profiler
from dsv4_trt.runtime.stepper import Chunk, Stepper

PRESETS = {"flash": FLASH, "pro": PRO}
DECODES = ((1, 8192), (8, 8192), (32, 8192), (128, 8192), (1, 1 << 20))
CHUNK = 8192
STEPS = 20
TARGET_MS = 14.0  # of a decode step of all 43 layers of Flash, one sequence at 8K


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--preset", choices=PRESETS, default="flash", help="whose widths [default: flash]"
    )
    parser.add_argument(
        "--layers", type=int, default=8, help="of the first layers, how many [default: 8]"
    )
    args = parser.parse_args()
    require_gpu()
    about = circumstances("model_step", args.note)
    whole = PRESETS[args.preset]
    spec = cut_layers(whole, args.layers)
    engine = _engine(spec)
    cases = [_decode(engine, whole, batch, context) for batch, context in DECODES]
    cases.append(_prefill(engine, whole))
    first = cases[0]["full_depth_ms"]
    result = {
        **about,
        "gpu": torch.cuda.get_device_name(0),
        "preset": args.preset,
        "layers": args.layers,
        "cases": cases,
        "target_ms": TARGET_MS,
        "target_met": first <= TARGET_MS if args.preset == "flash" else None,
    }
    write(f"{args.preset}-{args.name}", result)
    return 0


def _engine(spec: ModelSpec) -> CudaEngine:
    batch = max(batch for batch, _ in DECODES)
    build = BuildSpec(max_batch_size=batch, max_num_tokens=CHUNK, max_seq_len=1 << 20, mtp=False)
    with tempfile.TemporaryDirectory() as folder:
        build_bundle(dummy_checkpoint(spec, mtp=False), Path(folder, "engine"), build)
        bundle = open_bundle(Path(folder, "engine"))
    lens = [8192 + 8 * STEPS] * batch + [1 << 20, CHUNK]
    engine = open_cuda_engine(bundle, plan_for_sequences(bundle.layout, lens))
    for slab in engine.slabs.values():
        for part in slab.split(1 << 16):
            part.random_(0x28, 0x48)  # finite in every format
    return engine


def _rows(stepper: Stepper, batch: int, context: int) -> np.ndarray:
    """Open sequences of `context` tokens whose pages hold what was there."""
    rows = np.array([stepper.kv.open() for _ in range(batch)], np.int32)
    ends = np.full(batch, context, np.int32)
    stepper.kv.commit(stepper.kv.prepare(rows, ends))
    return rows


def _decode(engine: CudaEngine, whole: ModelSpec, batch: int, context: int) -> dict[str, Any]:
    stepper = Stepper(engine)
    rows = _rows(stepper, batch, context - 4 * STEPS)
    step = [Chunk(row=int(row), token_ids=[1 + i]) for i, row in enumerate(rows)]
    for _ in range(3):
        stepper.step(step)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(STEPS):
        stepper.step(step)
    end.record()
    torch.cuda.synchronize()
    in_a_row = begin.elapsed_time(end) / STEPS
    latencies = []
    for _ in range(STEPS):
        start = time.perf_counter()
        stepper.step(step)
        torch.cuda.synchronize()
        latencies.append(1e3 * (time.perf_counter() - start))
    profiler = engine.profile()
    for _ in range(5):
        stepper.step(step)
    engine.end_profile()
    case = {
        "case": f"decode B={batch} context={context}",
        "latency_ms": statistics.median(latencies),
    }
    return _report(case, in_a_row, profiler, "decode", whole, engine.spec)


def _prefill(engine: CudaEngine, whole: ModelSpec) -> dict[str, Any]:
    ids = torch.randint(2, engine.spec.vocab_size, (CHUNK,)).tolist()

    def run() -> float:
        stepper = Stepper(engine)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        stepper.step([Chunk(row=stepper.kv.open(), token_ids=ids)])
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end))

    run()
    times = [run() for _ in range(3)]
    profiler = engine.profile()
    run()
    engine.end_profile()
    case = {"case": f"prefill of {CHUNK} tokens"}
    return _report(case, statistics.median(times), profiler, "prefill", whole, engine.spec)


def _report(
    case: dict[str, Any],
    step_ms: float,
    profiler: Profiler,
    phase: str,
    whole: ModelSpec,
    spec: ModelSpec,
) -> dict[str, Any]:
    steps = profiler.steps[phase]
    total = sum(row.us for row in profiler.rows(phase))
    ops = [
        {
            "op": row.op,
            "calls": row.calls // steps,
            "us": round(row.us / steps, 1),
            "floor_us": round(row.floor_us / steps, 1),
            "share": round(row.us / total, 3),
        }
        for row in profiler.rows(phase)
    ]
    full = step_ms * _full_depth(profiler, phase, whole, spec)
    case |= {"step_ms": round(step_ms, 3), "full_depth_ms": round(full, 2), "ops": ops}
    print(f"\n{case['case']}: {step_ms:.3f} ms, {full:.2f} ms at {whole.num_hidden_layers} layers")
    print(f"  {'op':18}{'calls':>6}{'us':>10}{'floor us':>10}{'of floor':>10}{'share':>8}")
    for op in ops:
        share = op["floor_us"] / op["us"] if op["us"] else 0.0
        print(
            f"  {op['op']:18}{op['calls']:6}{op['us']:10.1f}{op['floor_us']:10.1f}{share:10.1%}"
            f"{op['share']:8.1%}"
        )
    return case


def _full_depth(profiler: Profiler, phase: str, whole: ModelSpec, spec: ModelSpec) -> float:
    """By how much a step grows from `spec`'s layers to `whole`'s, from the time of each layer kind."""
    nodes = profiler.node_us(phase)
    total = sum(nodes.values())
    by_layer = [
        sum(us for name, us in nodes.items() if name.startswith(f"layers.{i}."))
        for i in range(spec.num_hidden_layers)
    ]
    rest = total - sum(by_layer)
    mean = {
        kind: statistics.mean(
            us for us, k in zip(by_layer, spec.layer_kinds, strict=True) if k is kind
        )
        for kind in set(spec.layer_kinds)
    }
    return (rest + sum(mean[kind] for kind in whole.layer_kinds)) / total


if __name__ == "__main__":
    raise SystemExit(main())
