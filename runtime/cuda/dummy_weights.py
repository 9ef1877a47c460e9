"""Weights that are made up on the device: of the right size and scale, for measuring speed without a file.

Values are drawn so that activations keep their size from layer to layer, the same ones every time; what a
model of them says means nothing.
"""

from __future__ import annotations

from math import log2, prod
from zlib import crc32

import torch

from dsv4_trt.dtypes import DType
from dsv4_trt.graph import Value
from dsv4_trt.mapping import Mapping
from dsv4_trt.model_spec import LayerKind, ModelSpec
from dsv4_trt.plugins.cuda_ops import TORCH_DTYPES

_SCALE_BIAS = 127  # of an e8m0 byte
_CODE_RMS = {"fp4": 2.9, "fp8": 1.0}  # of the codes drawn below
_CHUNK = 1 << 28  # elements drawn at a time


def fill_dummy(
    arena: torch.Tensor, offset: int, value: Value, spec: ModelSpec, mapping: Mapping
) -> None:
    """Write the weight `value` to its place in the arena (int8)."""
    shape = tuple(int(dim) for dim in value.shape)
    count = prod(shape)
    nbytes = count * value.dtype.itemsize
    target = arena[offset : offset + nbytes].view(TORCH_DTYPES[value.dtype]).view(shape)
    special = _special(value.name, shape, spec, mapping)
    if special is not None:
        target.copy_(special.to(target.dtype))
        return
    generator = torch.Generator(target.device).manual_seed(crc32(value.name.encode()))
    if value.dtype is DType.I8:
        _fill_bytes(target, value.name, spec, generator)
    else:
        _fill_floats(target, generator)


def _special(
    name: str, shape: tuple[int, ...], spec: ModelSpec, mapping: Mapping
) -> torch.Tensor | None:
    """Tensors whose values mean something."""
    if name == "embed.row_offset":
        return torch.zeros(shape)
    if name == "expert_map":
        local = spec.n_routed_experts // mapping.moe_ep_size
        every = torch.arange(spec.n_routed_experts)
        return torch.where(every < local, every, -1)
    if name.endswith(".inv_freq"):
        kind = LayerKind.SWA if ".swa." in name else LayerKind.CSA
        return torch.tensor(spec.inv_freq(kind))
    if name.endswith(".tid2eid"):
        first = torch.arange(shape[0]).unsqueeze(1) * 7
        return (first + torch.arange(shape[1])) % spec.n_routed_experts
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    return None


def _fill_bytes(
    target: torch.Tensor, name: str, spec: ModelSpec, generator: torch.Generator
) -> None:
    """Packed fp4 codes, or scales that give products of unit size."""
    if not name.endswith(".scale"):
        target.random_(-128, 128, generator=generator)
        return
    expert = ".experts." in name and spec.expert_dtype == "fp4"
    depth = target.shape[-1] * (32 if expert else 128)
    rms = _CODE_RMS["fp4" if expert else "fp8"]
    exponent = round(log2(rms * depth**0.5))
    target.fill_(_SCALE_BIAS - exponent)


def _fill_floats(target: torch.Tensor, generator: torch.Generator) -> None:
    scale = 1.0 if target.dtype is torch.float8_e4m3fn else target.shape[-1] ** -0.5
    flat = target.view(-1)
    for start in range(0, flat.numel(), _CHUNK):
        part = flat[start : start + _CHUNK]
        drawn = torch.randn(part.shape, device=part.device, generator=generator)
        part.copy_(drawn * scale)
