"""Runs a job in a process of its own: a crash inside TensorRT is an error like any other."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from dsv4_trt.builder.lowering.job import PlanJob
from dsv4_trt.contract import BUILD_LOG_FILE, engine_file
from dsv4_trt.errors import BuildError, ConfigError, Dsv4Error, PluginError
from dsv4_trt.plan_record import BuildRecord

Progress = Callable[[str], None]
_MODULE = "dsv4_trt.builder.lowering.child"
# libtensorrt_onnxparser_rtx opens the library by this name, which its package does not have
_RTX_NAME = "libtensorrt_rtx.so"
_HERE = "/proc/self/cwd"  # the process's folder, by a name that is always the same
# what TensorRT-RTX needs to be found; it asks nothing else of the environment, which would move its memory
_KEPT = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME")
_ERRORS: dict[str, type[Dsv4Error]] = {e.__name__: e for e in (ConfigError, PluginError)}


def run_job(job: PlanJob, folder: Path, progress: Progress = lambda what: None) -> BuildRecord:
    """Build the plan of a job into a folder, and add what TensorRT said to the log there.

    Raises what the builder raised, and `BuildError` if the process ended without a word.
    """
    with _scratch() as scratch:
        said = scratch / "said"
        process, messages = _start(job, scratch, said)
        try:
            result = _talk(process, messages, job, progress)
        except BaseException:
            process.kill()
            raise
        finally:
            messages.close()
            process.wait()
            _append(scratch / BUILD_LOG_FILE, folder / BUILD_LOG_FILE)
        if result is None:
            raise BuildError(_last_words(process.returncode, said.read_text(errors="replace")))
        name = engine_file(0, job.graph.name)
        shutil.move(scratch / name, folder / name)
    return result


@contextmanager
def _scratch() -> Iterator[Path]:
    """The folder that the process works in."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="dsv4-trt-")
    except OSError as error:
        raise ConfigError(
            f"there is no folder for temporary files ({error.strerror}); name one by TMPDIR"
        ) from error
    with folder as path:
        yield Path(path)


def _start(job: PlanJob, scratch: Path, said: Path) -> tuple[subprocess.Popen[str], IO[str]]:
    """The process, whose output goes to `said`, and its messages: they have a pipe of their own."""
    if not sys.executable:
        raise BuildError(
            "plans are built by a process of this Python, which does not know its own path"
        )
    reader, writer = _pipe()
    try:
        with said.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, str(writer)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                pass_fds=(writer,),
                cwd=scratch,
                env=_environment(job.engine, scratch),
                encoding="utf-8",
            )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return process, os.fdopen(reader, encoding="utf-8")


def _pipe() -> tuple[int, int]:
    """A pipe beyond standard streams, which take its place in the process if they are closed here."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


def _append(source: Path, target: Path) -> None:
    """Add a log to another one, if it was begun."""
    if source.exists():
        with target.open("ab") as out, source.open("rb") as more:
            shutil.copyfileobj(more, out)


def _environment(engine: str, scratch: Path) -> dict[str, str]:
    """The environment of the process, with TensorRT-RTX where its parser looks for it.

    The linker reads LD_LIBRARY_PATH once, at the start of a process. TensorRT 11 may be told many things
    about the GPU that it builds on, so there all of this process's is kept.
    """
    paths = os.pathsep.join(map(os.path.abspath, sys.path))
    kept = {k: v for k, v in os.environ.items() if engine == "tensorrt" or k in _KEPT}
    environment = {**kept, "PYTHONPATH": paths, "PYTHONUTF8": "1"}
    found = find_spec("tensorrt_rtx_libs")
    libraries = [] if found is None else list(found.submodule_search_locations or ())
    if libraries:
        (scratch / _RTX_NAME).symlink_to(Path(libraries[0], f"{_RTX_NAME}.1").absolute())
        places = [_HERE, kept.get("LD_LIBRARY_PATH", "")]
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, places))
    return environment


def _talk(
    process: subprocess.Popen[str], messages: IO[str], job: PlanJob, progress: Progress
) -> BuildRecord | None:
    """Hand over the job and listen until the process has no more to say."""
    assert process.stdin is not None
    try:
        with process.stdin as stdin:
            json.dump(job.to_json(), stdin)
    except BrokenPipeError:  # it died: its last words say why
        return None
    result: BuildRecord | None = None
    for line in messages:
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            raise _ERRORS.get(message["error"], BuildError)(message["message"])
        if "progress" in message:
            progress(message["progress"])
        else:
            result = BuildRecord.from_json(message["record"])
    return result


def _last_words(status: int, said: str) -> str:
    how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
    tail = "\n".join(said.strip().splitlines()[-20:])
    words = f"the last that it said:\n{tail}" if tail else "it said nothing"
    return f"the process in which TensorRT builds ended {how}; {words}"
