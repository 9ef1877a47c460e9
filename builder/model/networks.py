"""The two networks of a model: the trunk, and the MTP block that drafts from the trunk's streams."""

from __future__ import annotations

from dsv4_trt.builder.model.layer import mtp_layer, trunk_layers
from dsv4_trt.builder.model.linear import all_reduce, fp8_linear
from dsv4_trt.builder.model.residual import head, residual_path
from dsv4_trt.builder.network import Network
from dsv4_trt.graph import Graph


def trunk(net: Network) -> Graph:
    """Token ids to logits; outputs `[logits, streams]`, the streams as they are before the head."""
    streams = net.op("expand_streams", "streams", {"x": _embed(net)}, hc_mult=net.spec.hc_mult)[
        "streams"
    ]
    streams = residual_path(net, streams, trunk_layers(net.spec))
    return _finish(net, head(net, "", streams), streams)


def mtp(net: Network) -> Graph:
    """Trunk streams and the ids shifted by one to logits two tokens ahead.

    Outputs `[logits, streams]`: the block's own streams can be fed back for a further draft token.
    """
    streams = net.input("streams")
    embedding = _rms_norm(net, "mtp.0.enorm", _embed(net))
    normed = _rms_norm(net, "mtp.0.hnorm", streams)
    mixed = net.op(
        "add_streams",
        "mtp.0.mix",
        {
            "x": fp8_linear(net, embedding, "mtp.0.e_proj"),
            "streams": fp8_linear(net, normed, "mtp.0.h_proj"),
        },
    )["streams"]
    streams = residual_path(net, mixed, [mtp_layer(net.spec)])
    return _finish(net, head(net, "mtp.0.", streams), streams)


def _embed(net: Network) -> str:
    inputs = {
        "token_ids": net.input("token_ids"),
        "weight": net.weight("embed.weight"),
        "row_offset": net.weight("embed.row_offset"),
    }
    out = net.op("embed", "embed", inputs, out_dtype=str(net.precision.dtype))["out"]
    return out if net.mapping.tp_size == 1 else all_reduce(net, out, net.precision.dtype)


def _rms_norm(net: Network, prefix: str, x: str) -> str:
    weight = net.weight(f"{prefix}.weight")
    return net.op("rms_norm", prefix, {"x": x, "weight": weight}, eps=net.spec.rms_norm_eps)["out"]


def _finish(net: Network, logits: str, streams: str) -> Graph:
    net.output("logits", logits)
    net.output("streams", streams)
    net.graph.check()
    return net.graph
