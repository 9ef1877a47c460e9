"""The layers of a model: which kind each is, and where its weights and window pages are."""

from __future__ import annotations

from dataclasses import dataclass

from dsv4_trt.kv_layout import CacheClass
from dsv4_trt.model_spec import LayerKind, ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer to build."""

    prefix: str  # of its weights, "layers.3" or "mtp.0"
    index: int  # position in the layer schedule; MTP follows the last layer
    kind: LayerKind
    window_class: CacheClass = CacheClass.SWA
    hashed: bool = False  # experts by token id


def trunk_layers(spec: ModelSpec) -> list[Layer]:
    """All layers of the trunk."""
    return [
        Layer(prefix=f"layers.{i}", index=i, kind=kind, hashed=spec.is_hash_layer(i))
        for i, kind in enumerate(spec.layer_kinds)
    ]


def mtp_layer(spec: ModelSpec) -> Layer:
    """The layer inside the MTP block."""
    return Layer(
        prefix="mtp.0",
        index=spec.num_hidden_layers,
        kind=LayerKind.SWA,
        window_class=CacheClass.MTP_SWA,
    )
