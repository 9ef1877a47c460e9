"""Loads a rank file's tensors onto a device. On the CPU they stay mapped from the file."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open

from dsv4_trt.dtypes import DType
from dsv4_trt.errors import BundleMismatch
from dsv4_trt.graph import Graph, ValueKind

TORCH_DTYPES = {
    DType.F32: torch.float32,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.F8_E4M3: torch.float8_e4m3fn,
    DType.I64: torch.int64,
    DType.I32: torch.int32,
    DType.I16: torch.int16,
    DType.I8: torch.int8,
    DType.U8: torch.uint8,
    DType.BOOL: torch.bool,
}


def load_weights(path: Path, graphs: list[Graph], device: torch.device) -> dict[str, torch.Tensor]:
    """Every weight that the graphs name, checked for dtype and shape."""
    wanted = {v.name: v for graph in graphs for v in graph.of_kind(ValueKind.WEIGHT)}
    found = {}
    with safe_open(path, framework="pt", device=str(device)) as file:
        present = set(file.keys())
        for name, value in wanted.items():
            if name not in present:
                raise BundleMismatch(
                    f"{path} has no tensor '{name}', which the graph needs; convert and build again"
                )
            tensor = file.get_tensor(name)
            expected = (TORCH_DTYPES[value.dtype], value.shape)
            if (tensor.dtype, tuple(tensor.shape)) != expected:
                raise BundleMismatch(
                    f"tensor '{name}' of {path} is {tensor.dtype} {list(tensor.shape)}; the graph "
                    f"needs {expected[0]} {list(value.shape)}; convert and build again"
                )
            found[name] = tensor
    return found
