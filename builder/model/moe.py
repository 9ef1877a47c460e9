"""Mixture of experts of one layer: router, routed experts, shared expert, their sum."""

from __future__ import annotations

from dsv4_trt.builder.model.linear import all_reduce
from dsv4_trt.builder.network import Network
from dsv4_trt.dtypes import DType
from dsv4_trt.model_spec import MX_BLOCK, QUANT_BLOCK


def moe(net: Network, prefix: str, x: str, *, hashed: bool) -> str:
    """`x [num_tokens, hidden]`, normalised, to the experts' output of the same shape."""
    routed = _experts(net, f"{prefix}.ffn", x, _route(net, f"{prefix}.ffn", x, hashed=hashed))
    name = f"{prefix}.ffn.sum"
    dtype = net.precision.dtype
    if net.mapping.tp_size == 1:
        shared = _shared_expert(net, f"{prefix}.ffn", x, dtype)
        return _add(net, name, routed, shared, dtype)
    if net.mapping.shared_expert_is_sharded(net.spec):
        shared = _shared_expert(net, f"{prefix}.ffn", x, DType.F32)
        return all_reduce(net, _add(net, name, routed, shared, DType.F32), dtype)
    shared = _shared_expert(net, f"{prefix}.ffn", x, dtype)
    return _add(net, name, all_reduce(net, routed, DType.F32), shared, dtype)


def _route(net: Network, at: str, x: str, *, hashed: bool) -> dict[str, str]:
    inputs = {"x": x, "gate": net.weight(f"{at}.gate.weight")}
    if hashed:
        inputs["tid2eid"] = net.weight(f"{at}.gate.tid2eid")
        inputs["token_ids"] = net.input("token_ids")
    else:
        inputs["bias"] = net.weight(f"{at}.gate.bias")
    return net.op(
        "router",
        f"{at}.router",
        inputs,
        by="token" if hashed else "score",
        topk=net.spec.num_experts_per_tok,
        route_scale=net.spec.routed_scaling_factor,
    )


def _experts(net: Network, at: str, x: str, routes: dict[str, str]) -> str:
    spec = net.spec
    fp4 = spec.expert_dtype == "fp4"
    return net.op(
        "experts",
        f"{at}.experts",
        {
            "x": x,
            "expert_ids": routes["expert_ids"],
            "weights": routes["weights"],
            "expert_map": net.weight("expert_map"),
            "w13": net.weight(f"{at}.experts.w13.weight"),
            "w13_scale": net.weight(f"{at}.experts.w13.scale"),
            "w2": net.weight(f"{at}.experts.w2.weight"),
            "w2_scale": net.weight(f"{at}.experts.w2.scale"),
        },
        weight_format=spec.expert_dtype,
        width=spec.moe_intermediate_size // net.mapping.moe_tp_size,
        pack=2 if fp4 else 1,
        scale_rows=1 if fp4 else QUANT_BLOCK,
        scale_cols=MX_BLOCK if fp4 else QUANT_BLOCK,
        act=net.precision.expert_act,
        swiglu_limit=spec.swiglu_limit,
    )["out"]


def _shared_expert(net: Network, at: str, x: str, out_dtype: DType) -> str:
    at = f"{at}.shared_experts"
    return net.op(
        "shared_expert",
        at,
        {
            "x": x,
            "w13": net.weight(f"{at}.w13.weight"),
            "w13_scale": net.weight(f"{at}.w13.scale"),
            "w2": net.weight(f"{at}.w2.weight"),
            "w2_scale": net.weight(f"{at}.w2.scale"),
        },
        width=int(net.weight_spec(f"{at}.w2.weight").shape[1]),
        act=net.precision.linear_act,
        swiglu_limit=net.spec.swiglu_limit,
        out_dtype=str(out_dtype),
    )["out"]


def _add(net: Network, name: str, a: str, b: str, out_dtype: DType) -> str:
    return net.op("add", name, {"a": a, "b": b}, out_dtype=str(out_dtype))["out"]
