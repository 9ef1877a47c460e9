"""Opens the native engine on the first GPU, building its kernels if this machine has not done so yet."""

from __future__ import annotations

import logging

import torch

from dsv4_trt.kv_plan import KvPlan
from dsv4_trt.plugins.library import Library, load_library
from dsv4_trt.plugins.library_build import (
    LOG_FILE,
    build_library,
    find_library,
    library_path,
)
from dsv4_trt.plugins.tensorrt_headers import needed_headers
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.cuda.engine import CudaEngine
from dsv4_trt.runtime.open import device_architecture

_logger = logging.getLogger(__name__)


def open_cuda_engine(bundle: Bundle, plan: KvPlan, **options: bool) -> CudaEngine:
    """The engine of an opened bundle; options are those of `CudaEngine`."""
    return CudaEngine(bundle, plan, device_library(), torch.device("cuda", 0), **options)


def device_library(*, plugins: bool = False) -> Library:
    """The kernel library for this machine's GPU, from the cache or built now, which is logged.

    With `plugins` it has those for TensorRT; raises `PluginError` where they can not be built.
    """
    architecture = device_architecture()
    assert architecture is not None, "a CUDA engine is opened without a GPU"
    path = find_library(architecture, plugins=plugins)
    if path is None:
        include = needed_headers() if plugins else None
        # a warning, as less is not shown where no logging is configured
        _logger.warning(
            "compiling kernels for %s: takes minutes, once; the compiler's output goes to %s",
            architecture,
            library_path((architecture,), include).with_name(LOG_FILE),
        )
        path = build_library((architecture,), tensorrt_include=include)
    return load_library(path)
