"""How large the KV cache's pools are and what they keep, in TensorRT-LLM's names where it has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dsv4_trt.errors import ConfigError
from dsv4_trt.kv_layout import Bucket
from dsv4_trt.kv_mix import DEFAULT_MIX, Load, parse_mix
from dsv4_trt.runtime.kv.retention import Retention

CPU_LENGTH = 8 << 10  # tokens of each of the max_batch_size sequences that pools on a CPU are for


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheConfig:
    """Pool sizes and reuse. Of several limits the smallest counts.

    On a GPU the pools take `free_gpu_memory_fraction` of what its weights leave free, in the proportions
    of the expected mix. On a CPU they are as large as the mix is, of which the default is
    `max_batch_size` sequences of 8K tokens, and `free_gpu_memory_fraction` limits them to that part of
    the available memory. Either way one sequence of `max_seq_len` fits.
    """

    enable_block_reuse: bool = True  # prompts that begin alike share pages: the prefix cache
    max_tokens: int | None = None  # pools for that many tokens in all
    free_gpu_memory_fraction: float = 0.9
    max_gpu_total_bytes: int | None = None  # of all pools of one rank; on a CPU too
    expected_mix: str | None = None  # "64x8K,8x128K": count x tokens of the sequences to expect
    pool_pages: Mapping[str, int] = field(default_factory=dict)  # pages of a pool, by its name
    tail_retention: str | int = "newest"  # "newest", "every", or each so many blocks

    def check(self) -> None:
        """Raise `ConfigError` naming the first field with an illegal value."""
        if type(self.enable_block_reuse) is not bool:
            raise ConfigError(
                f"enable_block_reuse is {self.enable_block_reuse!r}; expected true or false"
            )
        for name in ("max_tokens", "max_gpu_total_bytes"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)
        fraction = self.free_gpu_memory_fraction
        if type(fraction) not in (int, float) or not 0 < fraction <= 1:
            raise ConfigError(
                f"free_gpu_memory_fraction is {fraction!r}; expected above 0, 1 at most"
            )
        if not isinstance(self.pool_pages, Mapping):
            raise ConfigError(
                f"pool_pages is {self.pool_pages!r}; expected a mapping of pools to pages"
            )
        for bucket, pages in self.pool_pages.items():
            if bucket not in list(Bucket):
                raise ConfigError(
                    f"pool_pages names the pool {bucket!r}; expected {', '.join(Bucket)}"
                )
            check_whole(f"pool_pages['{bucket}']", pages, 0)
        if self.expected_mix is not None:
            if not isinstance(self.expected_mix, str):
                raise ConfigError(f"expected_mix is {self.expected_mix!r}; expected a text")
            parse_mix(self.expected_mix)
        Retention.parse(self.tail_retention)

    @property
    def retention(self) -> Retention | None:
        """Which tails stay; None without a prefix cache."""
        return Retention.parse(self.tail_retention) if self.enable_block_reuse else None

    @property
    def overrides(self) -> dict[Bucket, int]:
        """`pool_pages` by bucket."""
        return {Bucket(name): pages for name, pages in self.pool_pages.items()}

    def mix(self, max_seq_len: int, max_batch_size: int, *, on_gpu: bool) -> tuple[Load, ...]:
        """The sequences to expect; a default is cut to `max_seq_len`, a given mix never."""
        if self.expected_mix is not None:
            return parse_mix(self.expected_mix)
        default = DEFAULT_MIX if on_gpu else (Load(max_batch_size, CPU_LENGTH),)
        return tuple(Load(load.count, min(load.length, max_seq_len)) for load in default)


MAX_WHOLE = 2**63 - 1


def check_whole(name: str, value: object, low: int) -> None:
    """Raise `ConfigError` unless `value` is a whole number of at least `low` that 64 bits hold."""
    if type(value) is not int or not low <= value <= MAX_WHOLE:
        raise ConfigError(
            f"{name} is {value!r}; expected a whole number of at least {low}, 2**63 - 1 at most"
        )
