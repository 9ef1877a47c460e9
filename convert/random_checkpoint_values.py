"""Random bytes of official tensors, drawn so that a made model behaves like a trained one.

Dequantized weights are close to normal with a standard deviation of GAIN / sqrt(inputs): hidden states
stay finite, a few expert pre-activations pass the clamp at 10, logits have a scale of 5. A tensor's bytes
depend on the seed and its name alone. Everything comes from raw 64-bit words through lookup tables,
which is fast and does not change with numpy's samplers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from math import floor, log2, prod
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsv4_trt.dtypes import DType
from dsv4_trt.model_spec import MX_BLOCK, QUANT_BLOCK, ModelSpec
from dsv4_trt.rank_tensors import TensorSpec

Words = NDArray[Any]

CHUNK = 1 << 17  # elements drawn at a time; part of the format of a seed, so never change it
LEVELS = 1 << 16  # quantiles of the normal distribution
E4M3_STD = 100.0  # of the stored codes: the outermost of 65536 quantiles is just inside 448
FP4_STD = (
    68.5 / 8
) ** 0.5  # of 16 equally likely e2m1 codes, which is nearly a normal distribution

# times 1 / sqrt(inputs); 1.0 where not listed
GAINS = {
    "head": 5.0,
    "gate": 1.5,
    "wgate": 1.5,
    "weights_proj": 1.5,
    "wo_a": 1.5,
    "w1": 4.0,
    "w3": 4.0,
    "w2": 0.1,  # undoes the size of silu(w1 x) * w3 x
}
# mean and standard deviation of everything that is not a projection, by the end of its name
VECTORS = {
    "norm": (1.0, 0.2),
    "embed": (0.0, 1.0),
    "attn_sink": (1.0, 1.3),
    "ape": (0.0, 0.7),
    "bias": (0.0, 0.3),
    "_base": (0.0, 0.6),
    "_scale": (1.0, 0.2),
}


def draw(tensor: TensorSpec, spec: ModelSpec, seed: int) -> Iterator[Words]:
    """The tensor's elements in order, in chunks; each array's bytes are what goes into the file."""
    digest = hashlib.sha256(tensor.name.encode()).digest()
    words = np.frombuffer(digest[:16], np.uint32)
    source = np.random.SFC64(np.random.SeedSequence([seed, *words.tolist()]))
    if tensor.dtype is DType.I64:
        yield _distinct_experts(source, tensor.shape, spec.n_routed_experts)
    elif tensor.name.endswith(".scale"):
        yield _block_scales(source, tensor, spec)
    elif tensor.dtype is DType.I8:
        for count in _chunks(tensor):
            yield _raw(source, np.dtype(np.uint8), count)
    else:
        yield from _looked_up(source, tensor)


def _raw(source: np.random.SFC64, dtype: np.dtype[Any], count: int) -> Words:
    words: Words = source.random_raw(-(-count * dtype.itemsize // 8))
    return words.view(dtype)[:count]


def _chunks(tensor: TensorSpec) -> Iterator[int]:
    left = prod(tensor.shape)
    while left > 0:
        yield min(left, CHUNK)
        left -= CHUNK


def _looked_up(source: np.random.SFC64, tensor: TensorSpec) -> Iterator[Words]:
    mean, std = (0.0, E4M3_STD) if tensor.dtype is DType.F8_E4M3 else _mean_std(tensor)
    table = _normal_table(tensor.dtype, mean, std)
    for count in _chunks(tensor):
        level = _raw(source, np.dtype(np.uint16), count)
        yield np.take(table, level, mode="clip", out=np.empty(count, table.dtype))


def _stem(name: str) -> str:
    return name.removesuffix(".weight").removesuffix(".scale").rsplit(".", 1)[-1]


def _mean_std(tensor: TensorSpec) -> tuple[float, float]:
    stem = _stem(tensor.name)
    for ending, found in VECTORS.items():
        if stem.endswith(ending):
            return found
    return 0.0, GAINS.get(stem, 1.0) / tensor.shape[-1] ** 0.5


@cache
def _quantiles() -> NDArray[np.float32]:
    normal = NormalDist()
    upper = [normal.inv_cdf(0.5 + (i + 0.5) / LEVELS) for i in range(LEVELS // 2)]
    return np.array([-z for z in reversed(upper)] + upper, np.float32)


@cache
def _normal_table(dtype: DType, mean: float, std: float) -> Words:
    values = (np.float32(mean) + np.float32(std) * _quantiles()).astype(np.float32)
    if dtype is DType.F32:
        return values
    if dtype is DType.BF16:
        bits = values.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    assert dtype is DType.F8_E4M3, f"no table of {dtype}"
    codes = _e4m3_values()
    nearest = np.searchsorted((codes[1:] + codes[:-1]) / 2, np.abs(values))
    return (nearest | np.where(values < 0, 0x80, 0)).astype(np.uint8)


def _e4m3_values() -> NDArray[np.float64]:
    """Values of the codes 0 to 126; 127 is NaN."""
    code = np.arange(127)
    exponent, mantissa = code >> 3, code & 7
    normal = np.ldexp(1 + mantissa / 8, exponent - 7)
    return np.where(exponent == 0, np.ldexp(mantissa / 8, -6), normal)


def _block_scales(source: np.random.SFC64, tensor: TensorSpec, spec: ModelSpec) -> Words:
    is_fp4 = ".experts." in tensor.name and spec.expert_dtype == "fp4"
    inputs = tensor.shape[-1] * (MX_BLOCK if is_fp4 else QUANT_BLOCK)
    std = GAINS.get(_stem(tensor.name), 1.0) / inputs**0.5
    count = prod(tensor.shape)
    table = _exponent_table(std / (FP4_STD if is_fp4 else E4M3_STD))
    biased = table[_levels(source, count)]
    if count > 1 and (biased == biased[0]).all():
        biased[0] -= 1  # a scale read from the wrong block must show
    if tensor.dtype is DType.F32:
        return np.ldexp(np.float32(1), biased.astype(np.int32) - 127).astype(np.float32)
    return biased


def _levels(source: np.random.SFC64, count: int) -> Words:
    """Uniform bytes; a few are spread evenly and shuffled, because chance would not average out."""
    if count > 256:
        return _raw(source, np.dtype(np.uint8), count)
    order = np.argsort(_raw(source, np.dtype(np.uint32), count), kind="stable")
    return (order * 2 + 1) * 128 // count


@cache
def _exponent_table(rms: float) -> NDArray[np.uint8]:
    """256 equally likely e8m0 codes over four neighbouring powers of two with this mean square."""
    low = floor(log2(rms / 1.25))  # 1, 2, 1 parts of 2^-1, 2^0, 2^1 have a mean square of 1.25^2
    upper = ((rms / 1.25 / 2.0**low) ** 2 - 1) / 3  # share of the same mix one power higher
    lower = 1 - upper
    shares = np.array([lower, 2 * lower + upper, lower + 2 * upper, upper]) / 4
    ends = np.round(np.cumsum(shares) * 256)
    return (np.searchsorted(ends, np.arange(256), side="right") + low - 1 + 127).astype(np.uint8)


def _distinct_experts(source: np.random.SFC64, shape: tuple[int, ...], experts: int) -> Words:
    """Rows of distinct expert ids, every set equally likely (Floyd's sampling)."""
    rows, picks = shape
    chosen = np.empty((rows, picks), np.int64)
    for column, last in enumerate(range(experts - picks, experts)):
        word = _raw(source, np.dtype(np.uint32), rows).astype(np.uint64)
        drawn = (word * np.uint64(last + 1) >> np.uint64(32)).astype(np.int64)
        taken = (chosen[:, :column] == drawn[:, None]).any(axis=1)
        chosen[:, column] = np.where(taken, last, drawn)
    return chosen
