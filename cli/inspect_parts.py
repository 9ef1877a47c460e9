"""Parts of an inspection that every product has: the model and the tensors of its files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsv4_trt.model_spec import LayerKind, ModelSpec
from dsv4_trt.parameters import count_parameters

if TYPE_CHECKING:
    from dsv4_trt.safetensors_file import StoredTensor

Report = dict[str, Any]


def model_report(spec: ModelSpec) -> Report:
    """Config, layer schedule and parameter counts."""
    layers = [
        _layer(str(layer), kind, "token id" if spec.is_hash_layer(layer) else "score")
        for layer, kind in enumerate(spec.layer_kinds)
    ]
    if spec.has_mtp:
        layers.append(_layer("mtp.0", LayerKind.SWA, "score"))
    return {
        "model": spec.to_json(),
        "layers": layers,
        "parameters": asdict(count_parameters(spec)),
    }


def _layer(name: str, kind: LayerKind, experts_by: str) -> Report:
    return {
        "layer": name,
        "kind": kind.name.lower(),
        "compress_ratio": int(kind),
        "experts_by": experts_by,
    }


def tensor_report(files: Iterable[tuple[Path, tuple[StoredTensor, ...]]]) -> Report:
    """Files, tensors, and totals by element type."""
    summary: list[Report] = []
    tensors: list[Report] = []
    by_dtype: dict[str, Report] = {}
    for path, stored in files:
        size = path.stat().st_size
        summary.append({"file": path.name, "num_tensors": len(stored), "num_bytes": size})
        for tensor in stored:
            dtype = str(tensor.dtype)
            total = by_dtype.setdefault(dtype, {"dtype": dtype, "num_tensors": 0, "num_bytes": 0})
            total["num_tensors"] += 1
            total["num_bytes"] += tensor.nbytes
            tensors.append(
                {
                    "name": tensor.name,
                    "dtype": dtype,
                    "shape": list(tensor.shape),
                    "num_bytes": tensor.nbytes,
                    "file": path.name,
                }
            )
    return {"files": summary, "dtypes": list(by_dtype.values()), "tensors": tensors}
