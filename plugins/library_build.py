"""Builds the kernel library with the machine's nvcc, once for each state of its sources.

The library lies in a cache folder named by a digest of the sources, the op table and the architectures;
`DSV4_TRT_CACHE` moves the cache. One with TensorRT plugins has the version of their headers in the name
too, and the plugin harness beside it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

from dsv4_trt.errors import PluginError
from dsv4_trt.plugins.schema_header import schema_header
from dsv4_trt.plugins.table_header import table_header
from dsv4_trt.plugins.tensorrt_headers import headers_version
from dsv4_trt.targets import ARCHITECTURES

SOURCES = Path(__file__).resolve().parent
LIBRARY_FILE = "libdsv4_plugins.so"
HARNESS_FILE = "libdsv4_plugin_harness.so"  # beside it, where it has TensorRT plugins
LOG_FILE = "build.log"  # beside it: the compiler's output as it comes
_FOLDER_PREFIX = "build-"
_SUFFIXES = (".cu", ".cuh", ".cpp", ".h")
_COMPILED = re.compile(r"\[\d+/\d+\] Building ")  # a file, and not the op table or the link

Progress = Callable[[int], None]  # files done


def cache_root() -> Path:
    """Where built libraries are kept; raises `PluginError` if there is no such place."""
    named = os.environ.get("DSV4_TRT_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "dsv4-trt"
    try:
        return Path.home() / ".cache" / "dsv4-trt"
    except RuntimeError as error:  # a user that the system does not know
        raise PluginError(
            "this user has no home for a cache of kernels; name a folder by DSV4_TRT_CACHE"
        ) from error


def library_path(
    architectures: Sequence[str] = ("sm_90a",), tensorrt_include: Path | None = None
) -> Path:
    """Where the library of the present sources is or will be, with TensorRT plugins or without.

    Raises `PluginError` if `tensorrt_include` is no folder of TensorRT's headers.
    """
    if tensorrt_include is None:
        return _place(_source_digest(), architectures)
    version = headers_version(tensorrt_include)
    return _place(_source_digest(plugins=True), architectures, f"-trt{version}")


def find_library(architecture: str, *, plugins: bool = False) -> Path | None:
    """A library that runs on `architecture`: what `DSV4_PLUGIN_LIBRARY` names, or one in the cache.

    With `plugins` one that was built with TensorRT's headers, of any version that the plugins take; the
    named one is taken as it is. Raises `PluginError` if the variable names no file.
    """
    named = os.environ.get("DSV4_PLUGIN_LIBRARY")
    if named:
        if not Path(named).is_file():
            raise PluginError(
                f"DSV4_PLUGIN_LIBRARY names {named}, which is no file; name a kernel library that "
                "`dsv4-trt plugins build --output` wrote, or unset it"
            )
        return Path(named).absolute()  # the linker looks a bare name up elsewhere
    others = [other for other in ARCHITECTURES if other != architecture]
    built_for = [
        (architecture, *more)
        for count in range(len(others) + 1)
        for more in combinations(others, count)
    ]
    plain = None if plugins else _source_digest()
    full = _source_digest(plugins=True)
    found = (_built(architectures, plain, full) for architectures in built_for)
    return next((path for path in found if path is not None), None)


def num_sources(*, plugins: bool = False) -> int:
    """How many files there are to compile."""
    suffixes = (".cu", ".cpp")
    return sum(path.suffix in suffixes for path in _sources(plugins=plugins))


def find_nvcc() -> Path:
    """The CUDA compiler: `CUDA_HOME`, the PATH, then the usual place."""
    home = os.environ.get("CUDA_HOME")
    found = str(Path(home, "bin", "nvcc")) if home else shutil.which("nvcc")
    nvcc = Path(found or "/usr/local/cuda/bin/nvcc")
    if not nvcc.is_file():
        raise PluginError(
            f"no CUDA compiler at {nvcc}; install the CUDA toolkit (13.0 is what was tried), or set "
            "CUDA_HOME to the folder that has bin/nvcc"
        )
    return nvcc


def find_tool(name: str) -> str | None:
    """`cmake` or `ninja`: beside this Python, whose environment may not be activated, or on the PATH."""
    return shutil.which(name, path=_search_path())


def _search_path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def build_library(
    architectures: Sequence[str] = ("sm_90a",),
    *,
    tensorrt_include: Path | None = None,
    force: bool = False,
    jobs: int | None = None,
    progress: Progress = lambda done: None,
) -> Path:
    """Compile the library unless it is in the cache; returns its path.

    `tensorrt_include` is a folder with TensorRT's headers: plugins are built too. Without it a library
    that has plugins is as good as one that has none. Of processes that want the same library one compiles
    it, and the others wait.

    Raises:
        PluginError: an architecture is unknown, `tensorrt_include` has no headers of a version that the
            plugins take, a tool is missing, or a source does not compile; the compiler's output is in the
            message and in `build.log` beside the library's place.
    """
    for architecture in architectures:
        if architecture not in ARCHITECTURES:
            raise PluginError(
                f"architecture '{architecture}' is unknown; expected {', '.join(ARCHITECTURES)}"
            )
    target = library_path(architectures, tensorrt_include)
    there = target if target.is_file() else None
    if tensorrt_include is None:
        there = there or _built(architectures, None, _source_digest(plugins=True))
    if there is not None and not force:
        return there
    nvcc = find_nvcc()
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target.parent):
        if target.is_file() and not force:  # another process has been faster
            return target
        for left in target.parent.glob(f"{_FOLDER_PREFIX}*"):  # by one that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_FOLDER_PREFIX, dir=target.parent) as folder:
            log = target.with_name(LOG_FILE)
            _run_cmake(
                Path(folder),
                nvcc,
                sorted(set(architectures)),
                tensorrt_include,
                jobs,
                log,
                progress,
            )
            if tensorrt_include is not None:
                os.replace(Path(folder, HARNESS_FILE), target.with_name(HARNESS_FILE))
            os.replace(Path(folder, LIBRARY_FILE), target)  # whole or not at all
    return target


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits until no other process is in here with the same folder; one that is killed is out."""
    with folder.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run_cmake(
    folder: Path,
    nvcc: Path,
    architectures: Sequence[str],
    tensorrt_include: Path | None,
    jobs: int | None,
    log: Path,
    progress: Progress,
) -> None:
    targets = ";".join(f"{a.removeprefix('sm_')}-real" for a in architectures)
    configure = [
        *("cmake", "-S", str(SOURCES), "-B", str(folder), "-G", "Ninja"),
        f"-DCMAKE_CUDA_COMPILER={nvcc}",
        f"-DCMAKE_CUDA_ARCHITECTURES={targets}",
        f"-DPython3_EXECUTABLE={sys.executable}",
        f"-DTENSORRT_INCLUDE_DIR={tensorrt_include or ''}",
        "-DTENSORRT_ROOT=",  # not what the environment says
    ]
    build = ["cmake", "--build", str(folder)]
    if jobs:
        build += ["--parallel", str(jobs)]
    with log.open("w", buffering=1, encoding="utf-8") as out:  # by lines: it can be followed
        for command in (configure, build):
            _run(command, out.write, progress, log)


def _run(command: list[str], write: Callable[[str], object], progress: Progress, log: Path) -> None:
    root = str(SOURCES.resolve().parent)
    environment = {
        **os.environ,
        "PATH": _search_path(),
        "PYTHONPATH": os.pathsep.join([root, *sys.path]),
    }
    try:
        process = subprocess.Popen(
            command,
            executable=find_tool(command[0]),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env=environment,
        )
    except FileNotFoundError as error:
        raise PluginError(
            f"'{command[0]}' is not installed; building kernels needs cmake and ninja: "
            "pip install 'dsv4-trt[cuda]'"
        ) from error
    tail: list[str] = []
    done = 0
    with process:
        for line in process.stdout or ():
            write(line)
            tail = [*tail[-39:], line]
            if _COMPILED.match(line):
                done += 1
                progress(done)
    if process.returncode:
        no_ninja = "" if find_tool("ninja") else " 'ninja' is not installed: pip install ninja;"
        raise PluginError(
            f"`{' '.join(command[:3])} ...` failed with status {process.returncode};{no_ninja} the "
            f"whole log is {log}:\n{''.join(tail)}"
        )


def _built(architectures: Sequence[str], plain: str | None, full: str) -> Path | None:
    """The library of sources `plain` for these architectures, or one of `full`, which has plugins too."""
    if plain is not None:
        path = _place(plain, architectures)
        if path.is_file():
            return path
    pattern = _place(full, architectures, "-trt*").relative_to(cache_root())
    return max(cache_root().glob(str(pattern)), key=_version, default=None)


def _version(library: Path) -> list[int]:
    return [int(part) for part in library.parent.name.rpartition("-trt")[2].split(".")]


def _place(sources: str, architectures: Iterable[str], plugins: str = "") -> Path:
    """Where the library of these sources for some architectures, in any order, is or will be."""
    digest = hashlib.sha256((sources + ",".join(sorted(set(architectures)))).encode())
    return cache_root() / "plugins" / (digest.hexdigest()[:16] + plugins) / LIBRARY_FILE


def _sources(*, plugins: bool) -> list[Path]:
    csrc, harness = SOURCES / "csrc", SOURCES / "harness"
    files = [path for path in csrc.rglob("*") if path.suffix in _SUFFIXES]
    if plugins:
        return sorted([*files, *harness.iterdir()])
    return sorted(path for path in files if path.parent.name != "trt")


def _source_digest(*, plugins: bool = False) -> str:
    digest = hashlib.sha256()
    for path in _sources(plugins=plugins):
        digest.update(str(path.relative_to(SOURCES)).encode() + b"\0" + path.read_bytes())
    for path in [*sorted(SOURCES.glob("*.cmake")), SOURCES / "CMakeLists.txt"]:
        digest.update(path.read_bytes())
    digest.update(table_header().encode())
    if plugins:
        digest.update(schema_header().encode())
    return digest.hexdigest()
