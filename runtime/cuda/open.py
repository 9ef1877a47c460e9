"""Opens the native engine on the first GPU, building its kernels if this machine has not done so yet."""

from __future__ import annotations

import torch

from dsv4_trt.kv_plan import KvPlan
from dsv4_trt.plugins.library import Library, load_library
from dsv4_trt.plugins.library_build import Progress, build_library, find_library
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.cuda.engine import CudaEngine
from dsv4_trt.runtime.open import device_architecture


def open_cuda_engine(bundle: Bundle, plan: KvPlan, **options: bool) -> CudaEngine:
    """The engine of an opened bundle; options are those of `CudaEngine`."""
    return CudaEngine(bundle, plan, device_library(), torch.device("cuda", 0), **options)


def device_library(progress: Progress = lambda done: None) -> Library:
    """The kernel library for this machine's GPU, from the cache or built now."""
    architecture = device_architecture()
    assert architecture is not None, "a CUDA engine is opened without a GPU"
    path = find_library(architecture)
    if path is None:
        path = build_library((architecture,), progress=progress)
    return load_library(path)
