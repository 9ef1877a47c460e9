"""Time by op as a table: a step of each phase, its ops from the longest to the shortest."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsv4_trt.runtime.cuda.profile import OpTime, Profiler


def profile_text(profiler: Profiler) -> str:
    """What a profiler found, one table for each phase that ran; it names the GPU whose floors it has."""
    return "\n\n".join(_phase(profiler, phase, steps) for phase, steps in profiler.steps.items())


def _phase(profiler: Profiler, phase: str, steps: int) -> str:
    rows, gpu = profiler.rows(phase), profiler.ceilings.name
    total, floor = (sum(getattr(row, key) for row in rows) for key in ("us", "floor_us"))
    lines = [
        f"{phase}: mean of {steps} step(s), launch by launch; floors are an {gpu}'s on any GPU",
        f"{'op':20}{'calls':>7}{'us':>12}{f'floor us ({gpu})':>18}{'of floor':>10}{'share':>8}",
    ]
    lines += [_row(row, steps, total) for row in rows]
    share = floor / total if total else 0.0
    lines.append(
        f"{'all':20}{'':>7}{total / steps:12.1f}{floor / steps:18.1f}{share:10.1%}{1:8.1%}"
    )
    return "\n".join(lines)


def _row(row: OpTime, steps: int, total: float) -> str:
    times = f"{row.us / steps:12.1f}{row.floor_us / steps:18.1f}"
    return (
        f"{row.op:20}{row.calls // steps:7}{times}{row.share_of_floor:10.1%}{row.us / total:8.1%}"
    )
