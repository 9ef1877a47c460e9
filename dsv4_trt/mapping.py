"""How one model is spread over ranks, and which spreads are legal."""

from __future__ import annotations

from dataclasses import dataclass

from dsv4_trt.errors import ConfigError
from dsv4_trt.model_spec import QUANT_BLOCK, ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """Tensor parallel size and, inside it, the expert parallel size; `moe_tp = tp / ep`."""

    tp_size: int = 1
    moe_ep_size: int = 1

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.tp_size

    @property
    def moe_tp_size(self) -> int:
        """How many ranks share one expert."""
        return self.tp_size // self.moe_ep_size

    def ep_rank(self, rank: int) -> int:
        """Which block of experts `rank` holds."""
        return rank // self.moe_tp_size

    def moe_tp_rank(self, rank: int) -> int:
        """Which slice of each of its experts `rank` holds."""
        return rank % self.moe_tp_size

    def shared_expert_is_sharded(self, spec: ModelSpec) -> bool:
        """The shared expert is sharded only where its width stays whole scale blocks."""
        width = spec.moe_intermediate_size * spec.n_shared_experts
        return width % (QUANT_BLOCK * self.tp_size) == 0

    def check(self, spec: ModelSpec) -> None:
        """Raise `ConfigError` naming the first size that does not divide and the legal sizes."""
        if self.tp_size < 1 or self.moe_ep_size < 1:
            raise ConfigError(
                f"tp_size {self.tp_size} and moe_ep_size {self.moe_ep_size} must both be at least 1"
            )
        problem = _problem(spec, self)
        if problem is None:
            return
        legal = legal_mappings(spec)
        shown = ", ".join(f"tp {m.tp_size} ep {m.moe_ep_size}" for m in legal)
        raise ConfigError(
            f"tp_size {self.tp_size} with moe_ep_size {self.moe_ep_size} does not fit this model: "
            f"{problem}. Legal combinations: {shown}"
        )


def legal_mappings(spec: ModelSpec) -> list[Mapping]:
    """All mappings this model can be converted to, by tp size, then ep size."""
    found = []
    for tp in _divisors(spec.num_attention_heads):
        for ep in _divisors(tp):
            mapping = Mapping(tp_size=tp, moe_ep_size=ep)
            if _problem(spec, mapping) is None:
                found.append(mapping)
    return found


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _problem(spec: ModelSpec, mapping: Mapping) -> str | None:
    tp, ep = mapping.tp_size, mapping.moe_ep_size
    if tp % ep:
        return f"moe_ep_size {ep} must divide tp_size {tp}"
    divided = {
        "num_attention_heads": (spec.num_attention_heads, tp),
        "o_groups": (spec.o_groups, tp),
        "vocab_size": (spec.vocab_size, tp),
        "n_routed_experts": (spec.n_routed_experts, ep),
        "moe_intermediate_size": (spec.moe_intermediate_size, mapping.moe_tp_size),
    }
    for name, (size, parts) in divided.items():
        if size % parts:
            return f"{name} {size} is not divisible by {parts}"
    width = spec.moe_intermediate_size // mapping.moe_tp_size
    if width % QUANT_BLOCK:
        return (
            f"moe_intermediate_size {spec.moe_intermediate_size} over {mapping.moe_tp_size} ranks "
            f"leaves {width}, which is not a multiple of {QUANT_BLOCK}"
        )
    return None
