"""Reads an official checkpoint into op inputs, on its own, so that op tests do not lean on convert."""

import torch
from safetensors.torch import load_file

from dsv4_trt.convert.config import load_model_spec
from dsv4_trt.model_spec import LayerKind


class CheckpointWeights:
    """Op inputs by official name."""

    def __init__(self, folder):
        self.spec = load_model_spec(folder)
        self.tensors = {}
        for shard in sorted(folder.glob("*.safetensors")):
            self.tensors |= load_file(shard)

    def __getitem__(self, name):
        return self.tensors[name]

    def fp8(self, *prefixes):
        """Weight and scale bytes of one or several stacked linears."""
        scales = [scale_bytes(self[f"{prefix}.scale"]) for prefix in prefixes]
        return {"weight": self.stacked(*prefixes), "scale": torch.cat(scales)}

    def stacked(self, *prefixes):
        return cat([self[f"{prefix}.weight"] for prefix in prefixes])

    def expert_bank(self, prefix, *names):
        """All experts' `names` stacked, as (weight, scale)."""
        parts = []
        for expert in range(self.spec.n_routed_experts):
            at = [f"{prefix}.experts.{expert}.{name}" for name in names]
            parts.append(self.fp8(*at))
        weight = torch.stack([p["weight"].view(torch.int8) for p in parts])
        dtype = torch.int8 if self.spec.expert_dtype == "fp4" else torch.float8_e4m3fn
        return weight.view(dtype), torch.stack([p["scale"] for p in parts])

    def inv_freq(self, kind: LayerKind):
        return torch.tensor(self.spec.inv_freq(kind), dtype=torch.float64).float()


def scale_bytes(scale):
    """Scales as e8m0 bytes; float32 ones must be powers of two."""
    if scale.dtype is torch.float8_e8m0fnu:
        return scale.view(torch.int8)
    mantissa, exponent = torch.frexp(scale)
    assert (mantissa == 0.5).all(), "a block scale is not a power of two"
    return (exponent - 1 + 127).to(torch.uint8).view(torch.int8)


def cat(tensors):
    return torch.cat([t.view(torch.int8) for t in tensors], 0).view(tensors[0].dtype)
