"""A rank file's tensors, held against the graphs; on the CPU they stay mapped from the file."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open

from dsv4_trt.errors import BundleMismatch
from dsv4_trt.graph import Graph, Value, ValueKind
from dsv4_trt.safetensors_file import StoredTensor, read_header


def wanted_weights(graphs: list[Graph]) -> dict[str, Value]:
    """Every weight that the graphs name."""
    return {v.name: v for graph in graphs for v in graph.of_kind(ValueKind.WEIGHT)}


def stored_weights(path: Path, wanted: dict[str, Value]) -> list[StoredTensor]:
    """Where the wanted tensors lie in the file, in its order; raises `BundleMismatch` if one differs."""
    present = {tensor.name: tensor for tensor in read_header(path).tensors}
    for name, value in wanted.items():
        tensor = present.get(name)
        if tensor is None:
            raise BundleMismatch(
                f"{path} has no tensor '{name}', which the graph needs; convert and build again"
            )
        if (tensor.dtype, tensor.shape) != (value.dtype, value.shape):
            raise BundleMismatch(
                f"tensor '{name}' of {path} is {tensor.dtype} {list(tensor.shape)}; the graph needs "
                f"{value.dtype} {list(value.shape)}; convert and build again"
            )
    return [tensor for tensor in present.values() if tensor.name in wanted]


def load_weights(path: Path, graphs: list[Graph], device: torch.device) -> dict[str, torch.Tensor]:
    """Every weight that the graphs name, checked for dtype and shape."""
    stored = stored_weights(path, wanted_weights(graphs))
    with safe_open(path, framework="pt", device=str(device)) as file:
        return {tensor.name: file.get_tensor(tensor.name) for tensor in stored}
