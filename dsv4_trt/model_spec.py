"""The shape of one DeepSeek-V4 model: what the config says, checked, and nothing derived twice.

`ModelSpec` is plain data. `convert/config.py` makes it from a Hugging Face `config.json`; rank
checkpoints and bundles carry it as the `model` section of their own `config.json`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from typing import Any

from dsv4_trt.errors import ConfigError

QUANT_BLOCK = 128  # rows and columns of one fp8 weight scale; also one activation scale
MX_BLOCK = 32  # inputs that share one fp4 scale


class LayerKind(IntEnum):
    """What a layer attends to besides its window; the value is the compress ratio."""

    SWA = 0  # the 128-token window only
    CSA = 4  # overlapping groups of 4 tokens, picked by the indexer
    HCA = 128  # groups of 128 tokens, all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """Rotary frequencies of the two kinds of layers (SWA: plain; CSA and HCA: YaRN)."""

    theta: float
    compress_theta: float
    factor: float
    original_max_position: int
    beta_fast: float
    beta_slow: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """One model. Field names are those of the hub's `config.json`."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_nextn_predict_layers: int  # MTP blocks present in the checkpoint (0 or 1)
    num_hash_layers: int
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    sliding_window: int
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    n_routed_experts: int
    n_shared_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    routed_scaling_factor: float
    swiglu_limit: float
    hc_mult: int
    hc_sinkhorn_iters: int
    hc_eps: float
    rms_norm_eps: float
    rope: RopeSpec
    max_position_embeddings: int
    bos_token_id: int
    eos_token_id: int
    compress_ratios: tuple[int, ...]  # one per layer, MTP not included
    expert_dtype: str  # "fp4" or "fp8": what the converted weights hold

    @property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """Kind of each trunk layer."""
        return tuple(LayerKind(ratio) for ratio in self.compress_ratios)

    @property
    def has_mtp(self) -> bool:
        """Whether the checkpoint carries an MTP block."""
        return self.num_nextn_predict_layers > 0

    @property
    def group_width(self) -> int:
        """Inputs of one output group: the concatenated heads of the group."""
        return self.num_attention_heads // self.o_groups * self.head_dim

    @property
    def hc_mix(self) -> int:
        """Rows of a hyper-connection projection: pre, post and the square combination."""
        return self.hc_mult * (2 + self.hc_mult)

    def is_hash_layer(self, layer: int) -> bool:
        """Whether the experts of `layer` come from the token-id table."""
        return layer < self.num_hash_layers

    def inv_freq(self, kind: LayerKind) -> list[float]:
        """Rotation per position of each pair of rotated channels, in double precision.

        Source: official inference code, `precompute_freqs_cis`; no amplitude factor anywhere.
        """
        dim = self.qk_rope_head_dim
        theta = self.rope.theta if kind is LayerKind.SWA else self.rope.compress_theta
        freqs = [theta ** (-2.0 * i / dim) for i in range(dim // 2)]
        if kind is LayerKind.SWA:
            return freqs

        def correction(rotations: float) -> float:
            span = self.rope.original_max_position / (rotations * 2 * math.pi)
            return dim * math.log(span) / (2 * math.log(theta))

        low = max(math.floor(correction(self.rope.beta_fast)), 0)
        high = min(math.ceil(correction(self.rope.beta_slow)), dim - 1)
        width = max(high - low, 0.001)
        ramps = [min(max((i - low) / width, 0.0), 1.0) for i in range(dim // 2)]
        return [f * (1 - r) + f / self.rope.factor * r for f, r in zip(freqs, ramps, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; `from_json` gives an equal spec back."""
        data = asdict(self)
        data["compress_ratios"] = list(self.compress_ratios)
        return data

    @staticmethod
    def from_json(data: dict[str, Any]) -> ModelSpec:
        """Read what `to_json` wrote; unknown or missing keys raise `ConfigError`."""
        known = {f.name for f in fields(ModelSpec)}
        if set(data) != known:
            raise ConfigError(
                "model section of config.json does not match this version: "
                f"unknown keys {sorted(set(data) - known)}, missing keys {sorted(known - set(data))}"
            )
        values = dict(data)
        values["rope"] = RopeSpec(**values["rope"])
        values["compress_ratios"] = tuple(values["compress_ratios"])
        return ModelSpec(**values)
