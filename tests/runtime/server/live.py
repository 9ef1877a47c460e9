"""A real `dsv4-trt serve` in a process of its own, for tests that speak HTTP with it."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

START_SECONDS = 120
END_SECONDS = 30
BUILD = ("--max_seq_len", 4096, "--max_num_tokens", 1024, "--max_batch_size", 16)


def make_engine(workshop, run_cli, seed=0):
    """The tiny model with the real tokenizer, as `make demo` builds it."""
    engine = workshop.root / f"tiny-{seed}.engine"
    if not engine.exists():
        model, ranks = workshop.root / f"tiny-{seed}.hf", workshop.root / f"tiny-{seed}.ckpt"
        run_cli("make-checkpoint", "--preset", "tiny", "--seed", seed, "--output_dir", model)
        run_cli("convert", "--model_dir", model, "--output_dir", ranks)
        run_cli("build", "--checkpoint_dir", ranks, "--output_dir", engine, *BUILD)
    return engine


@dataclass
class LiveServer:
    """A server that runs, its address, and what it has logged."""

    process: subprocess.Popen
    url: str
    log: list = field(default_factory=list)

    @property
    def logged(self):
        return "".join(self.log)

    def end(self, number=signal.SIGTERM):
        """Send a signal and wait; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(END_SECONDS)


@contextmanager
def live_server(engine_dir, *options, command=None, env=()):
    """Run `dsv4-trt serve` on a free port until the `with` ends; it must end by itself on SIGTERM.

    `command` stands for `-m dsv4_trt.cli.main serve`-like beginnings of another server.
    """
    begin = command or [sys.executable, "-c", "from dsv4_trt.cli.main import main; main()", "serve"]
    arguments = [*begin, "--engine_dir", engine_dir, "--port", 0, *options]
    path = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [str(argument) for argument in arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **dict(env)},
    )
    server = LiveServer(process, "")
    reader = threading.Thread(target=_keep, args=(process.stderr, server.log), daemon=True)
    reader.start()
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    try:
        line = process.stdout.readline()
        timer.cancel()
        if not line:
            process.wait(END_SECONDS)
            reader.join(END_SECONDS)
            raise AssertionError(f"the server ended at its start:\n{server.logged}")
        server.url = line.split()[-1]
        yield server
    finally:
        timer.cancel()
        _end(process)
        process.stdout.close()
        reader.join(END_SECONDS)
        process.stderr.close()


def _keep(pipe, lines):
    lines.extend(pipe)


def _end(process):
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


@contextmanager
def fake_server(folder, *options, step_seconds=0.01):
    """A server over the fake executor; `folder` holds a tokenizer."""
    command = [sys.executable, "-m", "tests.runtime.server.fake_executor"]
    env = {"DSV4_FAKE_STEP": str(step_seconds)}
    with live_server(folder, *options, command=command, env=env.items()) as live:
        yield live
