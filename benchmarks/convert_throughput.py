"""Conversion against `cp` of the same files on the same disk: cold cache, synced, digests on.

Makes a one-layer checkpoint of Flash's shape (several GB), then times `cp -r` plus `sync` and `dsv4-trt
convert` in turn, dropping the page cache before each (needs root; without it the cache is only advised
away). Prints throughput, ratio and peak resident memory, and writes them with machine and date.

    python benchmarks/convert_throughput.py --work_dir /data/tmp
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results_file import ROOT, circumstances, parser_of, write

from dsv4_trt.convert.source import open_source

TARGET_RATIO = 0.60
BASE_RSS_BYTES = 1 << 30  # the promise: 1 GiB and four times the largest source tensor
TENSORS_IN_RSS = 4


def main() -> int:
    args = _arguments()
    about = circumstances("convert_throughput", args.note)
    about |= {"preset": args.preset, "convert_options": args.convert_options}
    with tempfile.TemporaryDirectory(prefix="convert-bench-", dir=args.work_dir) as folder:
        source = Path(folder) / "source"
        _cli("make-checkpoint", "--preset", args.preset, "--seed", "1", "--output_dir", str(source))
        result = {**about, **_measure(source, Path(folder) / "copy", args)}
    print(json.dumps(result, indent=2))
    write(args.name, result)
    return 0 if result["ratio_met"] and result["rss_met"] else 1


def _arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--work_dir", type=Path, help="a folder on the disk to measure")
    parser.add_argument("--preset", default="flash-layers=1")
    parser.add_argument("--rounds", type=int, default=3, help="times each side is measured")
    parser.add_argument("convert_options", nargs="*", help="after --: more options of convert")
    return parser.parse_args()


def _cli(*arguments: str) -> tuple[float, int]:
    """Run the command in a process of its own; returns seconds and peak resident bytes."""
    command = [sys.executable, "-m", "dsv4_trt.cli", *arguments]
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"failed: {' '.join(command)}")
    return seconds, usage.ru_maxrss * 1024


def _copy(source: Path, target: Path) -> float:
    began = time.monotonic()
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)
    os.sync()
    return time.monotonic() - began


def _cold(source: Path) -> bool:
    """Drop the page cache; returns whether all of it went."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
        return True
    except OSError:
        for path in source.iterdir():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
        return False


def _measure(source: Path, target: Path, args: argparse.Namespace) -> dict[str, Any]:
    opened = open_source(source)
    largest = max(tensor.nbytes for tensor in opened.tensors.values())
    copies, converts, peaks, cold = [], [], [], True
    for _ in range(args.rounds):
        cold &= _cold(source)
        copies.append(_copy(source, target))
        shutil.rmtree(target)
        cold &= _cold(source)
        options = ["--model_dir", str(source), "--output_dir", str(target)]
        seconds, peak = _cli("convert", *options, *args.convert_options)
        converts.append(seconds)
        peaks.append(peak)
        shutil.rmtree(target)
        print(f"cp {copies[-1]:.1f} s, convert {seconds:.1f} s, {peak >> 20} MiB", file=sys.stderr)
    limit = BASE_RSS_BYTES + TENSORS_IN_RSS * largest
    copy, convert = statistics.median(copies), statistics.median(converts)
    return {
        "source_bytes": opened.nbytes,
        "largest_tensor_bytes": largest,
        "cold_cache": cold,
        "cp_seconds": [round(s, 2) for s in copies],
        "convert_seconds": [round(s, 2) for s in converts],
        "cp_gb_per_s": round(opened.nbytes / copy / 1e9, 3),
        "convert_gb_per_s": round(opened.nbytes / convert / 1e9, 3),
        "ratio": round(copy / convert, 3),
        "ratio_target": TARGET_RATIO,
        "ratio_met": copy / convert >= TARGET_RATIO,
        "peak_rss_bytes": max(peaks),
        "rss_limit_bytes": limit,
        "rss_met": max(peaks) <= limit,
    }


if __name__ == "__main__":
    raise SystemExit(main())
