"""What the memory of one GPU leaves for the KV cache once a rank's weights are in it."""

from __future__ import annotations

from dataclasses import dataclass

from dsv4_trt.cli.plan_source import PlanSource
from dsv4_trt.cli.sizes import gib
from dsv4_trt.errors import CapacityError, ConfigError
from dsv4_trt.mapping import legal_mappings


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Memory of one GPU, in bytes; what neither weights nor KV take is for activations."""

    device_bytes: int
    weight_bytes: int
    free_fraction: float  # of what the weights leave: the KV cache's part

    @property
    def kv_bytes(self) -> int:
        """What the pools may take."""
        return int((self.device_bytes - self.weight_bytes) * self.free_fraction)


def device_memory(source: PlanSource, device_bytes: int, free_fraction: float) -> DeviceMemory:
    """Memory of one rank.

    Raises `CapacityError` with the smallest legal tp_size if the weights do not fit, and `ConfigError`
    for a fraction that is none.
    """
    if not 0 < free_fraction <= 1:  # nan too
        raise ConfigError(
            f"kv_cache_free_gpu_memory_fraction is {free_fraction:g}; expected above 0, 1 at most"
        )
    weight_bytes = source.weight_bytes()
    if weight_bytes >= device_bytes:
        raise CapacityError(
            f"the weights of one rank at tp_size {source.mapping.tp_size} take "
            f"{gib(weight_bytes)} ({weight_bytes:,} B), the memory is {gib(device_bytes)} "
            f"({device_bytes:,} B); {_remedy(source, device_bytes)}"
        )
    return DeviceMemory(
        device_bytes=device_bytes, weight_bytes=weight_bytes, free_fraction=free_fraction
    )


def _remedy(source: PlanSource, device_bytes: int) -> str:
    own = source.mapping.moe_ep_size
    legal = sorted(
        legal_mappings(source.spec), key=lambda m: (m.tp_size, m.moe_ep_size != own, m.moe_ep_size)
    )
    for mapping in legal:
        need = source.weight_bytes(mapping)
        if need < device_bytes:
            where = "convert again with" if source.is_bundle else "use"
            return (
                f"the smallest legal tp_size that fits is {mapping.tp_size}, with {gib(need)}; "
                f"{where} --tp_size {mapping.tp_size} --moe_ep_size {mapping.moe_ep_size}"
            )
    least = min(source.weight_bytes(mapping) for mapping in legal)
    return f"no legal tp_size fits, the least that a rank needs is {gib(least)}"
