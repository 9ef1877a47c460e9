"""Runs a job in a process of its own: a crash inside TensorRT is an error like any other."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dsv4_trt.builder.lowering.job import PlanJob
from dsv4_trt.contract import BUILD_LOG_FILE, engine_file
from dsv4_trt.errors import BuildError, ConfigError, Dsv4Error, PluginError
from dsv4_trt.plan_record import BuildRecord

Progress = Callable[[str], None]
_MODULE = "dsv4_trt.builder.lowering.child"
# libtensorrt_onnxparser_rtx opens the library by this name, which its package does not have
_RTX_NAME = "libtensorrt_rtx.so"
_ERRORS: dict[str, type[Dsv4Error]] = {e.__name__: e for e in (ConfigError, PluginError)}


def run_job(job: PlanJob, folder: Path, progress: Progress = lambda what: None) -> BuildRecord:
    """Build the plan of a job into a folder, and add what TensorRT said to the log there.

    The process works in a folder of its own: names of another length move things in its memory, and with
    them what TensorRT puts into a plan.

    Raises what the builder raised, and `BuildError` if the process ended without a word.
    """
    with tempfile.TemporaryDirectory(prefix="dsv4-trt-") as scratch:
        said = Path(scratch, "said")
        with said.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                cwd=scratch,
                env=rtx_environment(Path(scratch)),
                encoding="utf-8",
            )
        try:
            result = _talk(process, job, progress)
        except BaseException:
            process.kill()
            raise
        finally:
            process.wait()
            _append(Path(scratch, BUILD_LOG_FILE), folder / BUILD_LOG_FILE)
        if result is None:
            raise BuildError(_last_words(process.returncode, said.read_text(errors="replace")))
        name = engine_file(0, job.graph.name)
        shutil.move(Path(scratch, name), folder / name)
    return result


def _append(source: Path, target: Path) -> None:
    """Add a log to another one, if it was begun."""
    if source.exists():
        with target.open("ab") as out, source.open("rb") as more:
            shutil.copyfileobj(more, out)


def rtx_environment(scratch: Path) -> dict[str, str]:
    """This process's environment for one that imports TensorRT-RTX; `scratch` lives as long as that.

    The linker reads LD_LIBRARY_PATH once, at the start of a process.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    found = find_spec("tensorrt_rtx_libs")
    libraries = [] if found is None else list(found.submodule_search_locations or ())
    if libraries:
        (scratch / _RTX_NAME).symlink_to(Path(libraries[0], f"{_RTX_NAME}.1"))
        paths = [str(scratch), os.environ.get("LD_LIBRARY_PATH", "")]
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, paths))
    return environment


def _talk(process: subprocess.Popen[str], job: PlanJob, progress: Progress) -> BuildRecord | None:
    """Hand over the job and listen until the process has no more to say."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin as stdin:
            json.dump(job.to_json(), stdin)
    except BrokenPipeError:  # it died: its last words say why
        return None
    result: BuildRecord | None = None
    with process.stdout as messages:
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
    return f"the process in which TensorRT builds ended {how}; the last that it said:\n{tail}"
