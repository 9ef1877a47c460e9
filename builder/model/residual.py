"""The residual path: four streams mixed into each attention and expert site and mixed back after it.

The way back from one site and the way into the next are one op, so the streams cross memory once per
site.
"""

from __future__ import annotations

from dsv4_trt.builder.model.attention import attention
from dsv4_trt.builder.model.layer import Layer
from dsv4_trt.builder.model.moe import moe
from dsv4_trt.builder.network import Network


def residual_path(net: Network, streams: str, layers: list[Layer]) -> str:
    """Run layers over `streams [num_tokens, hc_mult, hidden]`; returns the streams after the last."""
    y: str | None = None
    mix = {"streams": streams}
    for layer in layers:
        mix = _enter(net, f"{layer.prefix}.hc_attn", f"{layer.prefix}.attn_norm", mix, y)
        y = attention(net, layer, mix["x"])
        mix = _enter(net, f"{layer.prefix}.hc_ffn", f"{layer.prefix}.ffn_norm", mix, y)
        y = moe(net, layer.prefix, mix["x"], hashed=layer.hashed)
    assert y is not None, "a model has at least one layer"
    return _leave(net, f"{layers[-1].prefix}.hc_post", mix, y)


def head(net: Network, prefix: str, streams: str) -> str:
    """Collapse the streams of the wanted rows and give fp32 logits over the whole vocabulary."""
    x = net.op(
        "mhc_head",
        f"{prefix}hc_head",
        {
            "streams": streams,
            "rows": net.input("logits_rows"),
            "fn": net.weight(f"{prefix}hc_head_fn"),
            "base": net.weight(f"{prefix}hc_head_base"),
            "scale": net.weight(f"{prefix}hc_head_scale"),
            "norm_weight": net.weight(f"{prefix}norm.weight"),
        },
        eps=net.spec.rms_norm_eps,
        hc_eps=net.spec.hc_eps,
    )["x"]
    logits = net.op(
        "linear",
        "head",
        {"x": x, "weight": net.weight("head.weight")},
        weight_format="bf16",
        act="none",
        out_dtype="F32",
    )["out"]
    if net.mapping.tp_size == 1:
        return logits
    return net.op("all_gather", "logits", {"x": logits}, world_size=net.mapping.tp_size)["out"]


def _enter(net: Network, hc: str, norm: str, mix: dict[str, str], y: str | None) -> dict[str, str]:
    inputs = {
        "streams": mix["streams"],
        "fn": net.weight(f"{hc}_fn"),
        "base": net.weight(f"{hc}_base"),
        "scale": net.weight(f"{hc}_scale"),
        "norm_weight": net.weight(f"{norm}.weight"),
    }
    attrs = {
        "eps": net.spec.rms_norm_eps,
        "hc_eps": net.spec.hc_eps,
        "iters": net.spec.hc_sinkhorn_iters,
    }
    if y is None:
        entered = net.op("mhc_pre", hc, inputs, **attrs)
        return {**entered, "streams": mix["streams"]}
    carried = {"y": y, "post": mix["post"], "comb": mix["comb"]}
    return net.op("mhc_post_pre", hc, inputs | carried, **attrs)


def _leave(net: Network, name: str, mix: dict[str, str], y: str) -> str:
    inputs = {key: mix[key] for key in ("streams", "post", "comb")}
    return net.op("mhc_post", name, {"y": y, **inputs})["streams"]
