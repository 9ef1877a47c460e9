"""Linear layers of the model, with the formats that the precision asks for."""

from __future__ import annotations

from dsv4_trt.builder.network import Network
from dsv4_trt.dtypes import DType


def fp8_linear(net: Network, x: str, prefix: str, *, out_dtype: DType | None = None) -> str:
    """`x @ W^T` with the fp8 weight `prefix`."""
    inputs = {
        "x": x,
        "weight": net.weight(f"{prefix}.weight"),
        "scale": net.weight(f"{prefix}.scale"),
    }
    return net.op(
        "linear",
        prefix,
        inputs,
        weight_format="fp8",
        act=net.precision.linear_act,
        out_dtype=str(out_dtype or net.precision.dtype),
    )["out"]


def bf16_linear(net: Network, x: str, prefix: str, *, out_dtype: DType) -> str:
    """`x @ W^T` with the bf16 weight `prefix`; products are summed in fp32."""
    inputs = {"x": x, "weight": net.weight(f"{prefix}.weight")}
    return net.op(
        "linear",
        prefix,
        inputs,
        weight_format="bf16",
        act="none",
        out_dtype=str(out_dtype),
    )["out"]


def reduced_linear(net: Network, x: str, prefix: str) -> str:
    """An fp8 linear whose inputs are split over ranks: partial products are summed in fp32."""
    if net.mapping.tp_size == 1:
        return fp8_linear(net, x, prefix)
    partial = fp8_linear(net, x, prefix, out_dtype=DType.F32)
    return all_reduce(net, partial, net.precision.dtype)


def all_reduce(net: Network, x: str, out_dtype: DType) -> str:
    """Sum over ranks."""
    return net.op("all_reduce", f"{x}.all_reduce", {"x": x}, out_dtype=str(out_dtype))["out"]
