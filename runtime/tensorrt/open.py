"""Opens the engine of TensorRT plans on the first GPU, and says beforehand how much memory plans take."""

from __future__ import annotations

import torch

from dsv4_trt.kv_plan import KvPlan
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.cuda.open import device_library
from dsv4_trt.runtime.tensorrt.engine import TensorRTEngine
from dsv4_trt.runtime.tensorrt.plan import load_plan


def open_tensorrt_engine(bundle: Bundle, plan: KvPlan, **options: bool) -> TensorRTEngine:
    """The engine of an opened bundle; options are those of `TensorRTEngine`."""
    library = device_library(plugins=True)
    return TensorRTEngine(bundle, plan, library, torch.device("cuda", 0), **options)


def plan_arena_bytes(bundle: Bundle) -> int:
    """Activation memory of steps of every size; the plans are loaded for it, and let go."""
    library = device_library(plugins=True)
    return max(load_plan(bundle, graph, library).arena_bytes for graph in bundle.graphs)
